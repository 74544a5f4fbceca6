"""AlterReplicaLogDirs: there is one data directory."""

import os

from logbrook.protocol.error_codes import ErrorCode
from logbrook.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.unit.server.handler_kit import HandlerShell
from tests.unit.server.handlers.kit import Peer, distinct_versions


@distinct_versions(AlterReplicaLogDirsRequest)
def test_a_replica_can_be_moved_to_where_it_is(broker: HandlerShell, peer: Peer, version: int) -> None:
    topic = AlterReplicaLogDirTopic(name=peer.create(), partitions=[0, 7])
    directories = [
        AlterReplicaLogDir(path=os.path.abspath(broker.services.config.data), topics=[topic]),
        AlterReplicaLogDir(path="/elsewhere", topics=[topic]),
    ]
    response = peer.ask(AlterReplicaLogDirsRequest(dirs=directories), AlterReplicaLogDirsResponse, version)
    assert [[partition.error_code for partition in result.partitions] for result in response.results] == [
        [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.LOG_DIR_NOT_FOUND] * 2,
    ]
