"""Parsing of options, as Spark passes them."""

import pytest

from logbrook.spark.errors import OptionError, SparkError
from logbrook.spark.options import OptionReader


@pytest.mark.parametrize("given", ["client.id", "CLIENT.ID", "kafka.client.id", "Kafka.Client.Id"])
@pytest.mark.parametrize("asked", ["client.id", "kafka.client.id", "Client.Id"])
def test_a_name_is_known_in_any_letter_case_and_with_kafkas_prefix(given: str, asked: str) -> None:
    options = OptionReader({given: "g"})
    assert asked in options
    assert options.text(asked) == "g"
    options.finish()


def test_an_option_may_be_given_twice_with_one_value() -> None:
    assert OptionReader({"client.id": "g", "kafka.client.id": "g"}).text("client.id") == "g"


def test_an_option_with_two_values_is_refused() -> None:
    with pytest.raises(OptionError, match=r"option 'kafka.client.id': it is given twice, as 'a' and as 'b'"):
        OptionReader({"client.id": "a", "kafka.client.id": "b"})


@pytest.mark.parametrize("prefixed", ["kafka.group.id", "Kafka.Group.Id"])
def test_the_group_of_the_client_is_another_option_than_that_of_commits(prefixed: str) -> None:
    options = OptionReader({"group.id": "a", prefixed: "b"})
    assert (options.text("group.id"), options.text("kafka.group.id")) == ("a", "b")
    assert "group.id" not in OptionReader({prefixed: "b"})


def test_a_text_has_no_blanks_around_it() -> None:
    assert OptionReader({"topic": "  my topic\n"}).text("topic") == "my topic"


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_option_has_no_value(text: str) -> None:
    options = OptionReader({"x": text})
    assert "x" in options
    assert options.text("x") is None
    assert options.integer("x", 7) == 7
    assert options.boolean("x", True) is True
    assert options.choice("x", ["a"], "b") == "b"
    assert options.json_object("x") is None
    assert options.only_one_of("x", "y") is None
    with pytest.raises(OptionError, match="option 'x': it is required"):
        options.required("x")


def test_an_option_that_is_not_given_has_its_default() -> None:
    options = OptionReader({})
    assert "x" not in options
    assert options.text("x") is None
    assert options.integer("x", None) is None
    assert options.integer("x", 7, at_least=10) == 7
    assert options.boolean("x", False) is False
    assert options.choice("x", ["a"], "a") == "a"
    assert options.json_object("x") is None


def test_a_required_option_has_to_be_given() -> None:
    assert OptionReader({"x": "a"}).required("x") == "a"
    with pytest.raises(OptionError, match=r"^option 'x': it is required$") as error:
        OptionReader({"y": "a"}).required("x")
    assert (error.value.name, error.value.reason) == ("x", "it is required")
    assert isinstance(error.value, SparkError)


@pytest.mark.parametrize(("text", "value"), [("0", 0), (" 12 ", 12), ("-3", -3), ("9223372036854775807", 2**63 - 1)])
def test_a_whole_number_is_read(text: str, value: int) -> None:
    assert OptionReader({"x": text}).integer("x", None) == value


@pytest.mark.parametrize("text", ["1.5", "ten", "1k", "0x10", "1 2", "1_000", "\u0661"])
def test_an_option_that_is_not_an_integer_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=f"option 'x': '{text}' is not a whole number"):
        OptionReader({"x": text}).integer("x", None)


def test_a_number_below_the_least_one_is_refused() -> None:
    assert OptionReader({"x": "1"}).integer("x", None, at_least=1) == 1
    with pytest.raises(OptionError, match="it must be at least 1, not 0"):
        OptionReader({"x": "0"}).integer("x", None, at_least=1)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("False", False)])
def test_a_boolean_is_read_in_any_letter_case(text: str, value: bool) -> None:
    assert OptionReader({"x": text}).boolean("x", not value) is value


@pytest.mark.parametrize("text", ["yes", "1", "tru"])
def test_an_option_that_is_not_a_boolean_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=f"it must be true or false, not '{text}'"):
        OptionReader({"x": text}).boolean("x", False)


def test_a_choice_gets_the_letter_case_of_the_allowed_value() -> None:
    assert OptionReader({"x": "READ_committed"}).choice("x", ["read_committed", "Other"], "Other") == "read_committed"
    assert OptionReader({"x": "other"}).choice("x", iter(["read_committed", "Other"]), "Other") == "Other"


def test_a_word_that_is_not_allowed_is_refused() -> None:
    with pytest.raises(OptionError, match="it must be error or latest, not 'earliest'"):
        OptionReader({"x": "earliest"}).choice("x", ["error", "latest"], "error")


def test_a_json_object_is_read() -> None:
    assert OptionReader({"x": '{"t": {"0": -2}}'}).json_object("x") == {"t": {"0": -2}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"t": ', "it is not JSON: "),
        ("earliest", "it is not JSON: "),
        ("[1]", r"it must be a JSON object, not '\[1\]'"),
        ("null", "it must be a JSON object, not 'null'"),
        ('{"t": 1, "t": 2}', "it names 't' twice"),
        ('{"t": {"0": 1, "0": 2}}', "it names '0' twice"),
    ],
)
def test_an_option_that_is_not_a_json_object_is_refused(text: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"option 'x': {reason}"):
        OptionReader({"x": text}).json_object("x")


def test_one_of_several_options_is_found() -> None:
    options = OptionReader({"subscribe": "t"})
    assert options.only_one_of("assign", "subscribe", "subscribePattern") == "subscribe"
    assert options.only_one_of("assign") is None
    options.finish()


def test_two_of_which_only_one_is_allowed_are_refused() -> None:
    with pytest.raises(OptionError, match="option 'subscribe': it cannot be given together with 'assign'"):
        OptionReader({"subscribe": "t", "assign": "{}"}).only_one_of("assign", "subscribe")


def test_an_unknown_option_is_refused_as_it_was_given() -> None:
    options = OptionReader({"kafka.Linger.Ms": "5"})
    with pytest.raises(OptionError, match=r"option 'kafka.Linger.Ms': there is no such option; docs/SPARK.md lists"):
        options.finish()


def test_a_misspelt_option_is_refused_with_the_right_name() -> None:
    options = OptionReader({"startingoffset": "earliest"})
    options.text("startingOffsets")
    with pytest.raises(OptionError, match=r"there is no such option; did you mean 'startingOffsets'\?"):
        options.finish()


def test_the_first_name_that_was_asked_for_is_the_one_in_the_hint() -> None:
    options = OptionReader({"bootstrap.server": "here"})
    options.text("kafka.bootstrap.servers")
    options.text("bootstrap.servers")
    with pytest.raises(OptionError, match=r"did you mean 'kafka.bootstrap.servers'\?"):
        options.finish()


def test_options_that_spark_adds_are_accepted() -> None:
    OptionReader({"path": "p", "checkpointLocation": "c", "queryName": "q"}).finish()


def test_a_caller_may_let_other_names_through() -> None:
    OptionReader({"mergeschema": "x"}, ignored=["mergeSchema"]).finish()
    with pytest.raises(OptionError, match="option 'path'"):
        OptionReader({"path": "p"}, ignored=["mergeSchema"]).finish()
