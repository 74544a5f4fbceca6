"""Identity of a batch write, from its options and from the micro-batch that it is part of."""

from collections.abc import Callable

import pytest

from logbrook.spark.errors import OptionError
from logbrook.spark.micro_batch import MicroBatch, WriteIdentity, current_micro_batch, identify_write

StartTask = Callable[..., None]
RUN = "11111111-1111-1111-1111-111111111111"


def test_a_write_outside_a_query_has_the_given_identity_or_none(start_task: StartTask) -> None:
    assert current_micro_batch() is None
    start_task()
    assert current_micro_batch() is None
    assert identify_write(None, None) is None
    assert identify_write("app", 3) == WriteIdentity("app", 3)


@pytest.mark.parametrize(
    ("app_id", "batch_id", "message"),
    [
        ("app", None, r"'batch\.id': it is required with app\.id"),
        (None, 0, r"'app\.id': it is required with batch\.id"),
    ],
)
def test_app_id_and_batch_id_are_required_together(
    start_task: StartTask, app_id: str | None, batch_id: int | None, message: str
) -> None:
    start_task()
    with pytest.raises(OptionError, match=message):
        identify_write(app_id, batch_id)


def test_a_write_of_a_micro_batch_is_identified_by_its_query(start_task: StartTask) -> None:
    start_task(7)
    assert current_micro_batch() == MicroBatch("query", RUN, 7)
    assert identify_write(None, None) == WriteIdentity("query", 7, "query", RUN)
    assert identify_write("app", None) == WriteIdentity("app", 7, "query", RUN)
    # With a given batch id the caller decides, so the run does not count.
    assert identify_write("app", 9) == WriteIdentity("app", 9, "query")
    assert identify_write(None, 9) == WriteIdentity("query", 9, "query")


def test_without_the_run_of_the_query_the_batch_id_must_be_given(start_task: StartTask) -> None:
    start_task(7, run_id="nightly")
    with pytest.raises(OptionError, match=r"'batch\.id': it is required in a foreachBatch that changes Spark's job"):
        identify_write("app", None)
    assert identify_write("app", 7) == WriteIdentity("app", 7, "query")
