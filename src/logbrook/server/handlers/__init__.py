"""One file per API. What is in this list is served, and ApiVersions says so."""

import importlib
from typing import Any

from logbrook.server.api import Api

_NAMES = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "alter_configs",
    "api_versions",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_topic_partitions",
    "describe_transactions",
    "end_txn",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_groups",
    "list_offsets",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "sync_group",
    "txn_offset_commit",
)


def all_apis() -> list[Api[Any]]:
    return [importlib.import_module(f"{__name__}.{name}").API for name in _NAMES]
