"""What Spark's checkpoint has of a stream."""

import json
from typing import Any

import pytest

from logbrook.client.cluster import TopicInfo
from logbrook.model import TopicPartition
from logbrook.spark.progress import CheckpointError, ids_in, offsets_in, to_document

IDS = {"a": TopicInfo(bytes(15) + b"\x0a", (0, 1), False), "b": TopicInfo(bytes(15) + b"\x0b", (0,), False)}
OFFSETS = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 9, TopicPartition("a", 9): 2**62}


def test_progress_survives_json() -> None:
    document = json.loads(json.dumps(to_document(OFFSETS, IDS)))
    assert offsets_in(document) == OFFSETS
    assert ids_in(document) == {"a": IDS["a"].id, "b": IDS["b"].id}


def test_the_same_progress_is_the_same_text() -> None:
    backwards = dict(reversed(OFFSETS.items()))
    assert json.dumps(to_document(OFFSETS, IDS)) == json.dumps(to_document(backwards, IDS))
    assert to_document(OFFSETS, IDS) == {
        "a": {"id": "0" * 30 + "0a", "offsets": {"9": 2**62, "10": 9}},
        "b": {"id": "0" * 30 + "0b", "offsets": {"0": 3}},
    }


def test_no_progress_is_a_document_too() -> None:
    assert to_document({}, IDS) == {}
    assert offsets_in({}) == {}
    assert ids_in({}) == {}


@pytest.mark.parametrize(
    "document",
    [{"t": {"0": 5}}, {"t": 5}, {"t": {"id": "00", "offsets": {"x": 1}}}, {"t": {"id": "00", "offsets": [1]}}],
)
def test_the_checkpoint_of_another_source_is_an_error(document: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"^the checkpoint has progress .* did not write: \{'t'"):
        offsets_in(document)


@pytest.mark.parametrize("topic", [{"offsets": {"0": 1}}, {"id": "xy", "offsets": {}}, {"id": 7}, 7])
def test_a_checkpoint_without_the_topics_id_is_an_error(topic: Any) -> None:
    with pytest.raises(CheckpointError, match="this source did not write"):
        ids_in({"t": topic})
