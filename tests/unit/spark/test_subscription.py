"""Selection of topics."""

import pytest

from logbrook.spark.errors import OptionError
from logbrook.spark.options import OptionReader
from logbrook.spark.read_options import Subscription, read_subscription


def read(**options: str) -> Subscription:
    return read_subscription(OptionReader(options))


def test_topics_are_named_with_commas_between_them() -> None:
    subscription = read(subscribe=" orders, payments ,,orders")
    assert subscription.names == ("orders", "payments")
    assert subscription.partitions_of("orders", [2, 0, 1]) == [0, 1, 2]
    assert not subscription.matches("orders")


def test_a_pattern_fits_whole_names() -> None:
    subscription = read(subscribePattern="order.*|pay")
    assert subscription.names is None
    assert [subscription.matches(name) for name in ("orders", "my-orders", "pay", "payments")] == [
        True,
        False,
        True,
        False,
    ]
    assert subscription.partitions_of("orders", [1, 0]) == [0, 1]


def test_partitions_are_named_one_by_one() -> None:
    subscription = read(assign='{"orders": [2, 0, 2], "payments": [1]}')
    assert subscription.names == ("orders", "payments")
    assert subscription.partitions_of("orders", range(9)) == [0, 2]
    assert subscription.partitions_of("payments", range(9)) == [1]


def test_a_subscription_has_to_be_given() -> None:
    with pytest.raises(
        OptionError, match=r"^option 'subscribe': one of assign, subscribe, subscribePattern is required"
    ):
        read()


@pytest.mark.parametrize(
    ("first", "second"), [("assign", "subscribe"), ("assign", "subscribePattern"), ("subscribe", "subscribePattern")]
)
def test_conflicting_subscription_options_are_refused(first: str, second: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{second}': it cannot be given together with '{first}'$"):
        read(**{first: "{}", second: "x"})


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("subscribe", ", ,", "it names no topic"),
        ("subscribePattern", "(", r"'\(' is not a pattern of topics: missing \)"),
        ("assign", "orders", "it is not JSON"),
        ("assign", "[0]", "it must be a JSON object"),
        ("assign", "{}", "it names no partition"),
        ("assign", '{"t": []}', "'t' needs a list of partitions"),
        ("assign", '{"t": 0}', "'t' needs a list of partitions"),
        ("assign", '{"t": [-1]}', "'t' needs a list of partitions"),
        ("assign", '{"t": [true]}', "'t' needs a list of partitions"),
        ("assign", '{"t": ["0"]}', "'t' needs a list of partitions"),
    ],
)
def test_an_invalid_subscription_is_refused_with_the_option_name(name: str, text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"^option '{name}': {reason}"):
        read(**{name: text})
