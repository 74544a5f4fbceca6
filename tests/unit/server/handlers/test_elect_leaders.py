"""ElectLeaders on a single node."""

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.unit.server.handlers.kit import Peer, distinct_versions

TYPES_SINCE = 1


@distinct_versions(ElectLeadersRequest)
def test_no_election_is_needed(peer: Peer, version: int) -> None:
    topic = peer.create(partitions=2)
    wanted = [TopicPartitions(topic=topic, partitions=[0, 1, 2, 0]), TopicPartitions(topic="nobody", partitions=[0])]
    response = peer.ask(ElectLeadersRequest(topic_partitions=wanted), ElectLeadersResponse, version)
    assert response.error_code == ErrorCode.NONE
    assert [
        (result.topic, [(partition.partition_id, partition.error_code) for partition in result.partition_result])
        for result in response.replica_election_results
    ] == [
        (
            topic,
            [
                (0, ErrorCode.ELECTION_NOT_NEEDED),
                (1, ErrorCode.ELECTION_NOT_NEEDED),
                (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
        ),
        ("nobody", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]


@distinct_versions(ElectLeadersRequest)
def test_an_election_for_all_partitions_omits_those_that_need_none(peer: Peer, version: int) -> None:
    peer.create()
    response = peer.ask(ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse, version)
    assert (response.error_code, response.replica_election_results) == (ErrorCode.NONE, [])


@distinct_versions(ElectLeadersRequest, first=TYPES_SINCE)
def test_an_unknown_type_of_election_is_refused(peer: Peer, version: int) -> None:
    wanted = [TopicPartitions(topic=peer.create(), partitions=[0])]
    response = peer.ask(ElectLeadersRequest(election_type=2, topic_partitions=wanted), ElectLeadersResponse, version)
    (result,) = response.replica_election_results
    assert [response.error_code, result.partition_result[0].error_code] == [ErrorCode.INVALID_REQUEST] * 2
