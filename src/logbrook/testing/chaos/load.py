"""The load of a chaos test: producers of several libraries, groups, and readers of leaders and followers."""

from logbrook.testing.chaos.plan import NODES, rack_of
from logbrook.testing.chaos.python_clients import AiokafkaClient, AiokafkaReader, KafkaPythonClient
from logbrook.testing.kill.load import ClientLoad
from logbrook.testing.kill.load_client import LoadClient, LoadState, Pace
from logbrook.testing.kill.members import LoadMember
from logbrook.testing.kill.producers import ProducerClient
from logbrook.testing.kill.transactional import TransactionalClient

PACE = Pace(burst_max=6, pause_s=0.04)


def chaos_load(state: LoadState, extra_writers: list[LoadClient]) -> ClientLoad:
    """Producers of librdkafka, kafka-python and aiokafka write to all partitions; two groups read them.

    The members of the group `followers` are in the racks of brokers, so that they read from followers.
    """
    return ClientLoad(
        state,
        [*writers(state), *extra_writers],
        members(state),
        [AiokafkaReader(state, "aiokafka-reader")],
        replicas=len(NODES),
        settings={"min.insync.replicas": "2"},
    )


def writers(state: LoadState) -> list[LoadClient]:
    return [
        # Gives a leader that does not answer up soon, so that pauses of writes are those of the cluster.
        ProducerClient(
            state,
            "librdkafka-idempotent",
            dict.fromkeys(("request.timeout.ms", "socket.timeout.ms"), 1_500),
            idempotent=True,
        ),
        ProducerClient(state, "librdkafka-plain", {"acks": "all"}, idempotent=False),
        KafkaPythonClient(state, "kafka-python"),
        AiokafkaClient(state, "aiokafka-idempotent"),
        TransactionalClient(state, "librdkafka-transactional", {}),
    ]


def members(state: LoadState) -> list[LoadMember]:
    isolation: dict[str, object] = {"isolation.level": state.isolation}
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    leaders = [LoadMember(state, f"leaders-{number}", "leaders", isolation) for number in range(2)]
    followers = [
        LoadMember(
            state, f"followers-{number}", "followers", {**isolation, **cooperative, "client.rack": rack_of(number)}
        )
        for number in NODES[:2]
    ]
    return [*leaders, *followers]
