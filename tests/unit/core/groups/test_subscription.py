"""kio's encoding of the same message, from Kafka's own definition, is the oracle."""

import dataclasses
import io
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from logbrook.core.groups.member import subscribed_topics
from tests.unit.core.groups.kit import subscription


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_begins_with_the_topics(version: int) -> None:
    module = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    later = {"owned_partitions": (), "generation_id": 7, "rack_id": "r"}
    fields = {field.name for field in dataclasses.fields(module.ConsumerProtocolSubscription)}
    message = module.ConsumerProtocolSubscription(
        topics=("orders", "payments"),
        user_data=b"anything",
        **{name: value for name, value in later.items() if name in fields},
    )
    buffer = io.BytesIO()
    entity_writer(module.ConsumerProtocolSubscription)(buffer, message)
    metadata = version.to_bytes(2, "big") + buffer.getvalue()
    assert subscribed_topics(metadata) == frozenset({"orders", "payments"})


def test_a_consumer_may_subscribe_to_nothing() -> None:
    assert subscribed_topics(subscription()) == frozenset()


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff", b"hello!"]
)
def test_an_undecodable_subscription_is_unknown(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


@given(st.binary(max_size=60))
def test_no_metadata_is_an_error(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)
