"""Clusters that have answered this Spark application, by their bootstrap servers.

They distinguish an outage from wrong servers (see `outages`). Spark plans the sink of each micro-batch, and each batch
query in a `foreachBatch`, in a Python process that may be new. So a contact is recorded in this process and as an empty
file of the application (`application_files`).
"""

import os
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from logbrook.client import BrokerError, Client, ClientError
from logbrook.protocol.error_classes import UNKNOWN_TOPIC
from logbrook.protocol.errors import ProtocolError
from logbrook.spark.application_files import worker_directory
from logbrook.spark.errors import UnreachableError
from logbrook.spark.outages import start_retry

if TYPE_CHECKING:
    # Loads the codecs, which planning a read does not need.
    from logbrook.spark.write_options import WriteOptions

_answered: set[str] = set()


def has_answered(servers: str) -> bool:
    """Return True if the cluster has answered this process, or another one of the application on this machine."""
    if servers in _answered:
        return True
    path = _contact_file(servers)
    return path is not None and os.path.exists(path)


def record_answer(servers: str) -> None:
    """Record that the cluster has answered."""
    if servers in _answered:
        return
    _answered.add(servers)
    path = _contact_file(servers)
    if path is not None:
        # Without the file, a new process that meets an outage takes the servers for wrong ones.
        with suppress(OSError), open(path, "ab"):
            pass


def check_sink(options: "WriteOptions") -> None:
    """Raise UnreachableError, within seconds, if the sink's cluster has never answered and does not answer now.

    Called on the driver. Tasks cannot distinguish wrong servers from an outage, and keep trying.
    """
    servers = options.bootstrap_servers
    if has_answered(servers):
        return
    with options.client() as client:
        try:
            replace(start_retry(), final=UNKNOWN_TOPIC).run(lambda: _reach_leader(client, options.topic))
        except BrokerError:
            # The cluster answers. The tasks report errors of the topic.
            pass
        except (ClientError, ProtocolError) as error:
            raise UnreachableError(servers, str(error)) from error
    record_answer(servers)


def _reach_leader(client: Client, topic: str | None) -> None:
    """Look up the leader of the first partition and connect to it: its advertised address may be wrong, too."""
    if topic is None:
        client.metadata([])
        return
    with client.invalidating(topic):
        client.connection(client.leader(topic, 0))


def _contact_file(servers: str) -> str | None:
    """Return the path of the file, None outside of Spark's worker processes."""
    directory = worker_directory()
    if directory is None:
        return None
    return os.path.join(directory, f".logbrook-contact-{sha256(servers.encode()).hexdigest()[:16]}")
