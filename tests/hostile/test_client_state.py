"""Every kind of state that a client can create has a bound, an answer at the bound, and leaves existing state alone.

Without sockets: the bounds are settings of the handlers' services, lowered for each test.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from logbrook.core.acls import AclOperation, PatternType, PermissionType, ResourceType
from logbrook.core.users import ITERATIONS_MIN, SCRAM_NUMBERS
from logbrook.model.identifiers import ProducerEpoch, ProducerId
from logbrook.model.security import ANONYMOUS, SaslMechanism
from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from logbrook.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from logbrook.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from logbrook.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from logbrook.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from logbrook.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from logbrook.protocol.messages.fetch import FetchResponse
from logbrook.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from logbrook.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from logbrook.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from logbrook.protocol.messages.produce import ProduceResponse
from logbrook.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from logbrook.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from tests.unit.server.handler_kit import HandlerClient, HandlerShell
from tests.unit.server.shell_kit import FETCH_VERSION, KIB, PRODUCE_VERSION, fetch_request, produce_request

# The last versions that identify topics by name and join a group with one request.
COMMIT_VERSION = 8
JOIN_VERSION = 3
TXN_COMMIT_VERSION = 3
PARTITIONS = 40
NONE = ErrorCode.NONE.name


@pytest.fixture
def victim() -> None:
    """Replace the fixture of the folder: each test has its own broker."""


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """Each test checks its own broker."""


class Attacker:
    """A client of a broker with lowered bounds, and the error codes that it got."""

    def __init__(self, shell: HandlerShell) -> None:
        self.shell = shell
        self.client: HandlerClient = shell.client()
        self.codes: Counter[str] = Counter()

    def note(self, code: int) -> str:
        name = ErrorCode(code).name
        self.codes[name] += 1
        return name

    def join(self, group: str, size: int = 0) -> JoinGroupResponse | None:
        """Join without waiting for the other members. None if the request is pending."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
        )
        client = self.shell.client()
        sent = client.send(request, JoinGroupResponse, JOIN_VERSION)
        if not sent.frame.done():
            self.note(ErrorCode.NONE)
            return None
        response = client.receive(sent)
        self.note(response.error_code)
        return response

    def commit(self, group: str, partition: int = 0, metadata: str = "") -> str:
        offset = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=1, committed_metadata=metadata
        )
        topic = OffsetCommitRequestTopic(name="wide", partitions=[offset])
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])
        response = self.client.request(request, OffsetCommitResponse, COMMIT_VERSION)
        return self.note(response.topics[0].partitions[0].error_code)

    def init(self, transactional_id: str | None) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        response = self.client.request(request, InitProducerIdResponse)
        self.note(response.error_code)
        return response


def test_groups() -> None:
    with HandlerShell({"groups": {"groups_max": 20}}) as shell:
        shell.create("wide", PARTITIONS)
        attacker = Attacker(shell)
        for number in range(50):
            attacker.commit(f"g{number}")
        assert attacker.codes == {NONE: 20, "POLICY_VIOLATION": 30}
        assert attacker.commit("g0") == NONE


def test_group_ids_of_the_greatest_length() -> None:
    with HandlerShell({"groups": {"state_bytes_max": 1024 * KIB}}) as shell:
        shell.create("wide", PARTITIONS)
        attacker = Attacker(shell)
        for number in range(60):
            attacker.commit(f"{number:032000}")
        assert attacker.codes.keys() == {NONE, "POLICY_VIOLATION"}
        assert 20 < attacker.codes[NONE] < 32


def test_members_of_a_group() -> None:
    with HandlerShell({"groups": {"members_max": 5, "initial_rebalance_delay_ms": 3_000}}) as shell:
        attacker = Attacker(shell)
        for _ in range(12):
            attacker.join("g")
        assert attacker.codes == {NONE: 5, "GROUP_MAX_SIZE_REACHED": 7}


def test_metadata_of_a_member() -> None:
    with HandlerShell({}) as shell:
        attacker = Attacker(shell)
        for number in range(5):
            attacker.join(f"g{number}", 6_000_000)
        assert attacker.codes == {"INVALID_REQUEST": 5}
        assert shell.services.groups.count_bytes() == 0


def test_metadata_of_all_members_of_a_group() -> None:
    with HandlerShell({"groups": {"group_bytes_max": 100 * KIB, "initial_rebalance_delay_ms": 3_000}}) as shell:
        attacker = Attacker(shell)
        for _ in range(20):
            attacker.join("g", 10 * KIB)
        assert attacker.codes.keys() == {NONE, "GROUP_MAX_SIZE_REACHED"}
        assert 8 <= attacker.codes[NONE] <= 9


def test_metadata_of_all_groups() -> None:
    with HandlerShell({"groups": {"state_bytes_max": 200 * KIB, "initial_rebalance_delay_ms": 3_000}}) as shell:
        attacker = Attacker(shell)
        for number in range(40):
            attacker.join(f"g{number}", 10 * KIB)
        assert 10 <= attacker.codes[NONE] <= 19
        assert attacker.codes.keys() <= {NONE, "GROUP_MAX_SIZE_REACHED", "POLICY_VIOLATION"}
        assert shell.services.groups.count_bytes() <= 200 * KIB


def test_assignments() -> None:
    with HandlerShell({"groups": {"group_bytes_max": 100 * KIB}}) as shell:
        attacker = Attacker(shell)
        member = attacker.join("g")
        assert member is not None
        assignment = SyncGroupRequestAssignment(member_id=member.member_id, assignment=bytes(200 * KIB))
        request = SyncGroupRequest(
            group_id="g", generation_id=member.generation_id, member_id=member.member_id, assignments=[assignment]
        )
        response = attacker.client.request(request, SyncGroupResponse, 3)
        assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_committed_offsets() -> None:
    with HandlerShell({"groups": {"state_bytes_max": 64 * KIB}}) as shell:
        shell.create("wide", PARTITIONS)
        attacker = Attacker(shell)
        for partition in range(PARTITIONS):
            attacker.commit("g", partition, "m" * 4_000)
        assert attacker.codes.keys() == {NONE, "INVALID_COMMIT_OFFSET_SIZE"}
        assert 10 <= attacker.codes[NONE] <= 16
        assert attacker.commit("g", 0, "n" * 4_000) == NONE


def test_pending_offsets() -> None:
    with HandlerShell({"groups": {"state_bytes_max": 64 * KIB}}) as shell:
        shell.create("wide", PARTITIONS)
        attacker = Attacker(shell)
        codes: Counter[str] = Counter()
        for number in range(20):
            producer = attacker.init(f"id{number}")
            add = AddOffsetsToTxnRequest(
                transactional_id=f"id{number}",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                group_id="g",
            )
            assert attacker.client.request(add, AddOffsetsToTxnResponse, 3).error_code == ErrorCode.NONE
            offset = TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata="m" * 4_000
            )
            commit = TxnOffsetCommitRequest(
                transactional_id=f"id{number}",
                group_id="g",
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                topics=[TxnOffsetCommitRequestTopic(name="wide", partitions=[offset])],
            )
            response = attacker.client.request(commit, TxnOffsetCommitResponse, TXN_COMMIT_VERSION)
            codes[ErrorCode(response.topics[0].partitions[0].error_code).name] += 1
        assert codes.keys() == {NONE, "INVALID_COMMIT_OFFSET_SIZE"}
        assert 10 <= codes[NONE] <= 16


def test_transactional_ids() -> None:
    with HandlerShell({"transactions": {"ids_max": 10}}) as shell:
        attacker = Attacker(shell)
        for number in range(25):
            attacker.init(f"id{number}")
        assert attacker.codes == {NONE: 10, "POLICY_VIOLATION": 15}
        assert attacker.init("id0").error_code == ErrorCode.NONE


def test_transactional_ids_of_the_greatest_length() -> None:
    with HandlerShell({"transactions": {"state_bytes_max": 512 * KIB}}) as shell:
        attacker = Attacker(shell)
        for number in range(30):
            attacker.init(f"{number:032000}")
        assert attacker.codes.keys() == {NONE, "POLICY_VIOLATION"}
        assert 10 <= attacker.codes[NONE] <= 16


def test_partitions_of_transactions() -> None:
    with HandlerShell({"transactions": {"state_bytes_max": 32 * KIB}}) as shell:
        shell.create("wide", PARTITIONS)
        attacker = Attacker(shell)
        codes: Counter[str] = Counter()
        for number in range(8):
            producer = attacker.init(f"id{number}")
            if producer.error_code != ErrorCode.NONE:
                continue
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=f"id{number}",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="wide", partitions=list(range(PARTITIONS)))],
            )
            response = attacker.client.request(request, AddPartitionsToTxnResponse, 3)
            (topic,) = response.results_by_topic_v3_and_below
            codes.update(ErrorCode(result.partition_error_code).name for result in topic.results_by_partition)
        assert codes.keys() == {NONE, "POLICY_VIOLATION"}
        assert 2 * PARTITIONS <= codes[NONE] <= 3 * PARTITIONS


def test_producer_ids() -> None:
    """They are never refused: the state of the least recently active producers is dropped."""
    with HandlerShell({"storage": {"producer_ids_max": 50}}) as shell:
        shell.create("t")
        client = shell.client()
        for producer_id in range(200):
            batch = build_batch(
                [Record(value=b"v")],
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0),
                base_sequence=0,
            )
            response = client.request(produce_request("t", batch), ProduceResponse, PRODUCE_VERSION)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert len(shell.log("t").producers) <= 50
        response = client.request(produce_request("t", batch), ProduceResponse, PRODUCE_VERSION)
        assert response.responses[0].partition_responses[0].base_offset == 199, "a duplicate of the last producer"


def test_producer_ids_of_all_partitions() -> None:
    """Producers invented in many partitions do not cost those of a partition that has few."""
    with HandlerShell({"storage": {"producer_ids_total_max": 100}}) as shell:
        shell.create("quiet")
        shell.create("wide", PARTITIONS)
        client = shell.client()

        def produce(topic: str, partition: int, producer_id: int) -> int:
            batch = build_batch(
                [Record(value=b"v")],
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0),
                base_sequence=0,
            )
            request = produce_request(topic, batch, partition=partition)
            (answer,) = client.request(request, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses
            assert answer.error_code == ErrorCode.NONE
            return answer.base_offset

        assert produce("quiet", 0, 7) == 0
        logs = [shell.log("quiet"), *(shell.log("wide", partition) for partition in range(PARTITIONS))]
        for producer_id in range(1_000, 1_500):
            base_offset = produce("wide", producer_id % PARTITIONS, producer_id)
            assert sum(len(log.producers) for log in logs) <= 100
        assert produce("quiet", 0, 7) == 0, "a duplicate"
        assert produce("wide", producer_id % PARTITIONS, producer_id) == base_offset, "a duplicate"


def test_producer_ids_that_are_only_asked_for_take_no_memory() -> None:
    with HandlerShell({}) as shell:
        attacker = Attacker(shell)
        assert len({attacker.init(None).producer_id for _ in range(1_500)}) == 1_500
        assert (len(shell.services.transactions.runtime), attacker.codes) == (0, {NONE: 1_500})


def test_fetch_sessions() -> None:
    """A fetch above the bound is answered, without a session."""
    with HandlerShell({"network": {"fetch_sessions_max": 10}}) as shell:
        shell.create("t")
        client = shell.client()
        fetch = fetch_request("t")
        fetch.session_epoch = 0
        responses = [client.request(fetch, FetchResponse, FETCH_VERSION) for _ in range(30)]
        assert {response.error_code for response in responses} == {ErrorCode.NONE}
        assert sum(response.session_id != 0 for response in responses) == 10
        assert len(shell.services.fetch_sessions) == 10


def test_topics_and_partitions() -> None:
    with HandlerShell({"topics": {"partitions_max": 10}}) as shell:
        client = shell.client()
        codes = []
        for number in range(8):
            topic = CreatableTopic(name=f"t{number}", num_partitions=3, replication_factor=1)
            response = client.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
            codes.append(ErrorCode(response.topics[0].error_code).name)
        assert codes == [NONE] * 3 + ["INVALID_PARTITIONS"] * 5


def test_settings_of_topics() -> None:
    with HandlerShell({}) as shell:
        client = shell.client()
        replicas = ",".join(f"{partition}:1" for partition in range(2_000))
        topic = CreatableTopic(
            name="t",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="leader.replication.throttled.replicas", value=replicas)],
        )
        response = client.request(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG
        assert "t" not in shell.services.topics.metadata.topics


# Each of the three requests creates an entry of about 550 bytes and a key.
SECURITY_STATE = {"security": {"authorization": True, "super_users": str(ANONYMOUS), "state_bytes_max": 8 * KIB}}


def create_user(client: HandlerClient, name: str, salt: bytes = b"salt") -> str:
    upsert = ScramCredentialUpsertion(
        name=name,
        mechanism=SCRAM_NUMBERS[SaslMechanism.SCRAM_SHA_256],
        iterations=ITERATIONS_MIN,
        salt=salt,
        salted_password=bytes(32),
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsert])
    (result,) = client.request(request, AlterUserScramCredentialsResponse).results
    return ErrorCode(result.error_code).name


def delete_user(client: HandlerClient, name: str) -> str:
    deletion = ScramCredentialDeletion(name=name, mechanism=SCRAM_NUMBERS[SaslMechanism.SCRAM_SHA_256])
    request = AlterUserScramCredentialsRequest(deletions=[deletion])
    (result,) = client.request(request, AlterUserScramCredentialsResponse).results
    return ErrorCode(result.error_code).name


def create_acl(client: HandlerClient, name: str) -> str:
    creation = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:mallory",
        host="*",
        operation=AclOperation.READ,
        permission_type=PermissionType.ALLOW,
    )
    (result,) = client.request(CreateAclsRequest(creations=[creation]), CreateAclsResponse).results
    return ErrorCode(result.error_code).name


def create_quota(client: HandlerClient, name: str) -> str:
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=name)],
        ops=[OpData(key="producer_byte_rate", value=1e6, remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (result,) = client.request(request, AlterClientQuotasResponse).entries
    return ErrorCode(result.error_code).name


@pytest.mark.parametrize("create", [create_user, create_acl, create_quota])
def test_users_acls_and_quotas(create: Callable[[HandlerClient, str], str]) -> None:
    with HandlerShell(SECURITY_STATE) as shell:
        client = shell.client()
        codes = [create(client, f"name-{number}") for number in range(30)]
        created = codes.count(NONE)
        assert 5 <= created <= 15
        assert codes == [NONE] * created + ["POLICY_VIOLATION"] * (30 - created)
        assert shell.services.security.bytes <= 8 * KIB
        assert create(client, "name-0") == NONE, "what exists may be set again"


def test_users_with_long_names_and_salts() -> None:
    with HandlerShell(SECURITY_STATE) as shell:
        client = shell.client()
        assert create_user(client, "x" * 10_000) == "POLICY_VIOLATION"
        assert create_user(client, "x", salt=bytes(10_000)) == "POLICY_VIOLATION"
        assert shell.services.security.bytes == 0


def test_a_deleted_user_makes_room_for_another() -> None:
    with HandlerShell(SECURITY_STATE) as shell:
        client = shell.client()
        while create_user(client, f"u{len(shell.services.security.users):02}") == NONE:
            pass
        assert delete_user(client, "u00") == NONE
        assert create_user(client, "new") == NONE
