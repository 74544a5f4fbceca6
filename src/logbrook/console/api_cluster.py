"""The part of the HTTP API about the cluster: nodes, moves under way, and the replicas of partitions."""

from typing import Annotated, Self

from fastapi import FastAPI, Query
from pydantic import BaseModel

from logbrook.client.cluster_overview import ClusterOverview, PartitionOverview, read_overview
from logbrook.console.cluster import ClusterAsker


class NodeOut(BaseModel):
    """`state` is up, down or "not answering"; `problem` says why it does not answer."""

    id: int
    host: str | None
    port: int | None
    rack: str | None
    state: str
    problem: str | None
    leaders: int
    replicas: int
    size_bytes: int | None


class MoveOut(BaseModel):
    """A move under way. `size_bytes` are the bytes to copy, of which `copied_bytes` are done."""

    topic: str
    partition: int
    before: list[int]
    after: list[int]
    copied_bytes: int
    size_bytes: int

    @classmethod
    def of(cls, partition: PartitionOverview) -> Self:
        return cls(
            **partition.partition._asdict(),
            before=list(partition.before_move),
            after=list(partition.target),
            copied_bytes=partition.copied_bytes,
            size_bytes=partition.bytes_to_copy,
        )


class ClusterOut(BaseModel):
    """Partitions are counted; `/cluster/partitions` lists them."""

    cluster_id: str | None
    nodes: list[NodeOut]
    partitions: int
    under_replicated: int
    offline: int
    moving: list[MoveOut]

    @classmethod
    def of(cls, overview: ClusterOverview) -> Self:
        return cls(
            cluster_id=overview.cluster_id,
            nodes=[NodeOut.model_validate(node, from_attributes=True) for node in overview.nodes],
            partitions=len(overview.partitions),
            under_replicated=len(overview.under_replicated),
            offline=len(overview.offline),
            moving=[MoveOut.of(partition) for partition in overview.moving],
        )


class ReplicasOut(BaseModel):
    """The replicas of a partition. `state` is ok, under-replicated or offline; `size_bytes` is that of the leader."""

    topic: str
    partition: int
    state: str
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]
    adding: list[int]
    removing: list[int]
    size_bytes: int | None

    @classmethod
    def of(cls, partition: PartitionOverview) -> Self:
        return cls(
            **partition.partition._asdict(),
            state=partition.state,
            leader=partition.leader,
            replicas=list(partition.replicas),
            in_sync=list(partition.in_sync),
            offline=list(partition.offline),
            adding=list(partition.adding),
            removing=list(partition.removing),
            size_bytes=partition.size_bytes,
        )


def add_cluster(api: FastAPI, access: ClusterAsker) -> None:
    """Add the operations to the API."""

    @api.get("/cluster", tags=["cluster"])
    async def describe_cluster() -> ClusterOut:
        """Describe the nodes of the cluster, how many partitions are impaired, and the moves under way."""
        return ClusterOut.of(await access.ask(lambda admin: read_overview(admin.client)))

    @api.get("/cluster/partitions", tags=["cluster"])
    async def list_replicas(
        topic: Annotated[str | None, Query(description="Only this topic.")] = None,
        node: Annotated[int | None, Query(description="Only partitions with a replica on this node.", ge=0)] = None,
        impaired: Annotated[
            bool, Query(description="Only partitions that are offline or have a replica that is not in sync.")
        ] = False,
        moving: Annotated[bool, Query(description="Only partitions that are being moved.")] = False,
        internal: Annotated[bool, Query(description="Include internal topics.")] = False,
    ) -> list[ReplicasOut]:
        """List partitions with their leader and replicas. An internal topic that is named is included."""
        overview = await access.ask(lambda admin: read_overview(admin.client))
        return [
            ReplicasOut.of(partition)
            for partition in overview.partitions
            if (partition.partition.topic == topic if topic is not None else internal or not partition.is_internal)
            and (node is None or node in partition.replicas)
            and (not impaired or partition.state != "ok")
            and (not moving or partition.is_moving)
        ]
