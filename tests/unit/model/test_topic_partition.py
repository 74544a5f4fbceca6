import pytest

from logbrook.model import InvalidTopicNameError, LogbrookError, TopicPartition, check_topic_name

NAMES = ["a", "Orders.eu-west_1", "0", "-", "_", "...", ".a", "a.", "__consumer_offsets", "a-0", "a-0-1", "x" * 249]


@pytest.mark.parametrize("name", NAMES)
def test_a_legal_name_is_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("partition", [0, 1, 10, 2**31 - 1])
def test_a_directory_reads_back_as_its_partition(name: str, partition: int) -> None:
    here = TopicPartition(name, partition)
    assert TopicPartition.from_directory(here.directory) == here
    assert str(here) == here.directory


def test_no_two_partitions_share_a_directory() -> None:
    partitions = [TopicPartition(name, partition) for name in NAMES for partition in (0, 1, 10)]
    assert len({partition.directory for partition in partitions}) == len(partitions)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "x" * 250,
        "a/b",
        "../../etc/passwd",
        "a\\b",
        "a\0b",
        "a\n",
        "a b",
        "a:b",
        "~",
        "$HOME",
        "%2e%2e",
        "é",
        "\N{FULLWIDTH LATIN SMALL LETTER A}",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "\N{ONE DOT LEADER}",
        "\udc80",
    ],
)
def test_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicNameError) as raised:
        check_topic_name(name)
    assert raised.value.name == name
    assert raised.value.reason in str(raised.value)
    assert isinstance(raised.value, LogbrookError)


def test_a_refusal_can_be_printed_whatever_the_name_was() -> None:
    with pytest.raises(InvalidTopicNameError) as raised:
        check_topic_name("\udc80\n\x1b[31m")
    str(raised.value).encode("ascii")


@pytest.mark.parametrize(
    "directory",
    [
        "",
        "a",
        "-0",
        "a-",
        "a--",
        "a-b",
        "a-01",
        "a-+1",
        "a-0 ",
        "a-0\n",
        " a-0",
        "a/b-0",
        "../a-0",
        "a-\N{ARABIC-INDIC DIGIT ONE}",
        "a-1.5",
        "a-0.deleted",
        "a-99999999999",
        "x" * 250 + "-0",
        "lost+found",
    ],
)
def test_other_directories_belong_to_no_partition(directory: str) -> None:
    assert TopicPartition.from_directory(directory) is None


def test_partitions_sort_by_topic_then_number() -> None:
    partitions = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert sorted(partitions) == [TopicPartition("a", 9), TopicPartition("a", 10), TopicPartition("b", 0)]
