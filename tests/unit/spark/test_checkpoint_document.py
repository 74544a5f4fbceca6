"""The offsets document in Spark's checkpoint."""

import json
from typing import Any

import pytest

from logbrook.client.partition_requests import TopicMetadata
from logbrook.model import TopicPartition
from logbrook.spark.stream_reader import CheckpointError, document_offsets, document_topic_ids, offset_document

IDS = {"a": TopicMetadata(bytes(15) + b"\x0a", (0, 1), False), "b": TopicMetadata(bytes(15) + b"\x0b", (0,), False)}
OFFSETS = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 9, TopicPartition("a", 9): 2**62}


def test_progress_survives_json() -> None:
    document = json.loads(json.dumps(offset_document(OFFSETS, IDS)))
    assert document_offsets(document) == OFFSETS
    assert document_topic_ids(document) == {"a": IDS["a"].id, "b": IDS["b"].id}


def test_the_same_progress_is_the_same_text() -> None:
    backwards = dict(reversed(OFFSETS.items()))
    assert json.dumps(offset_document(OFFSETS, IDS)) == json.dumps(offset_document(backwards, IDS))
    assert offset_document(OFFSETS, IDS) == {
        "a": {"id": "0" * 30 + "0a", "offsets": {"9": 2**62, "10": 9}},
        "b": {"id": "0" * 30 + "0b", "offsets": {"0": 3}},
    }


def test_no_progress_is_a_document_too() -> None:
    assert offset_document({}, IDS) == {}
    assert document_offsets({}) == {}
    assert document_topic_ids({}) == {}


@pytest.mark.parametrize(
    "document",
    [{"t": {"0": 5}}, {"t": 5}, {"t": {"id": "00", "offsets": {"x": 1}}}, {"t": {"id": "00", "offsets": [1]}}],
)
def test_the_checkpoint_of_another_source_is_an_error(document: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"^the checkpoint has progress .* did not write: \{'t'"):
        document_offsets(document)


@pytest.mark.parametrize("topic", [{"offsets": {"0": 1}}, {"id": "xy", "offsets": {}}, {"id": 7}, 7])
def test_a_checkpoint_without_the_topics_id_is_an_error(topic: Any) -> None:
    with pytest.raises(CheckpointError, match="this source did not write"):
        document_topic_ids({"t": topic})
