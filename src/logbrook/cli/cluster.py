"""`logbrook cluster`: brokers, health and settings of a running cluster. Other modules add further commands."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from logbrook.cli.cluster_adopt import add_to as add_adopt_to
from logbrook.cli.cluster_features import add_to as add_features_to
from logbrook.cli.cluster_moves import add_to as add_moves_to
from logbrook.cli.cluster_nodes import add_to as add_nodes_to
from logbrook.cli.cluster_status import add_to as add_status_to
from logbrook.cli.cluster_up import add_to as add_up_to
from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import FAILED, fail, refuse
from logbrook.cli.setting_arguments import (
    SET_FOR,
    VALUE_FORMS,
    parse_settings,
    refuse_unknown,
    setting_json,
)
from logbrook.cli.terminal import ParagraphCommand, print_fields, print_json, print_rows, print_title
from logbrook.client.admin import Admin
from logbrook.client.admin_health import ClusterHealth, check_health
from logbrook.client.admin_results import LogDirDescription
from logbrook.client.errors import BrokerError
from logbrook.model.identifiers import BrokerId
from logbrook.protocol.errors import UnsupportedApiError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)
add_up_to(app)
add_adopt_to(app)
add_status_to(app)
add_moves_to(app)
add_nodes_to(app)
add_features_to(app)


@app.command(cls=ParagraphCommand)
def info(as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Show the brokers of the cluster, their log directories and disks, and how many topics there are.

    JSON: {"cluster_id", "controller", "topics", "partitions", "brokers"}, with a list of {"id", "host", "port", "rack",
    "log_dirs"} and in it a list of {"path", "size_bytes", "disk_bytes", "free_bytes"}; unknown values are null.
    Internal topics are not counted.
    """
    with connected_admin(bootstrap) as admin:
        cluster = admin.describe_cluster()
        directories = _log_directories(admin)
        topics = [topic for topic in admin.client.metadata().topics if not topic.is_internal]
        document: dict[str, Any] = {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller_id,
            "topics": len(topics),
            "partitions": sum(len(topic.partitions) for topic in topics),
            "brokers": [
                {
                    "id": broker.id,
                    "host": broker.host,
                    "port": broker.port,
                    "rack": broker.rack,
                    "log_dirs": [_log_dir_json(entry) for entry in directories if entry.broker_id == broker.id],
                }
                for broker in cluster.brokers
            ],
        }
        if as_json:
            print_json(document)
            return
        print_fields([(name.replace("_", " "), document[name]) for name in list(document)[:-1]])
        print_title("Brokers")
        print_rows(document["brokers"], ("id", "host", "port", "rack"))
        if directories:
            print_title("Log directories")
            rows = [{"broker": entry.broker_id} | _log_dir_json(entry) for entry in directories]
            print_rows(rows, ("broker", "path", ("size", "size_bytes"), ("disk", "disk_bytes"), ("free", "free_bytes")))


@app.command(cls=ParagraphCommand)
def health(as_json: Json = False, bootstrap: Bootstrap = None) -> None:
    """Check that all brokers answer and that every partition has a leader, all its replicas, and can be read.

    Exit code 1 if something is wrong.

    JSON: {"healthy", "controller", "brokers", "brokers_down", "offline_log_dirs", "leaderless_partitions",
    "under_replicated_partitions", "unavailable_partitions"}. Brokers are ids, partitions are TOPIC-NUMBER; brokers_down
    and unavailable_partitions map them to the reason.
    """
    with connected_admin(bootstrap) as admin:
        checked = check_health(admin.client)
        document = _health_json(checked)
        if as_json:
            print_json(document)
        else:
            print_fields([(name.replace("_", " "), _shown(value)) for name, value in document.items()])
    if not checked.is_healthy:
        raise typer.Exit(FAILED)


@app.command(cls=ParagraphCommand, epilog=VALUE_FORMS)
def config(
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Settings to change; without any, all are shown.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Reset a setting to its default; repeatable.")
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", min=0, help="Only this broker; default: show the controller, change all.")
    ] = None,
    only_changed: Annotated[
        bool, typer.Option("--changed", help="Show only settings that are not the default.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show or change the settings of running brokers. Changes take effect at once and are kept when a broker restarts.

    Names are Kafka's. A setting that can only be given at start (`logbrook serve`) is refused.

    Example: logbrook cluster config log.retention.ms=3d --unset log.segment.bytes

    JSON, all settings: a list of {"name", "value", "source", "default", "read_only", "sensitive"}.
    """
    values = parse_settings(changes or [], "KEY=VALUE...")
    if conflicts := sorted(values.keys() & set(unset or [])):
        refuse("--unset", f"{', '.join(conflicts)} cannot be set and unset at once")
    with connected_admin(bootstrap) as admin:
        broker_id = _broker_to_show(admin, broker)
        if unset:
            refuse_unknown(unset, admin.configs.of_broker(broker_id), "a broker", "logbrook cluster config")
        if values or unset:
            if broker is None:
                admin.configs.alter_all_brokers(values, unset or [])
            else:
                admin.configs.alter_broker(broker_id, values, unset or [])
            if not as_json:
                where = "all brokers" if broker is None else f"broker {broker}"
                typer.echo(f"changed {', '.join([*values, *(unset or [])])} of {where}")
                return
        settings = [entry for entry in admin.configs.of_broker(broker_id) if not (only_changed and entry.is_default)]
        print_rows(
            [setting_json(entry) for entry in settings], (("setting", "name"), "value", SET_FOR), as_json=as_json
        )
        if not settings and not as_json:
            typer.echo("all settings are the default", err=True)


def _broker_to_show(admin: Admin, broker: int | None) -> BrokerId:
    cluster = admin.describe_cluster()
    ids = [entry.id for entry in cluster.brokers]
    if broker is not None and broker not in ids:
        refuse("--broker", f"there is no broker {broker}; there are {', '.join(map(str, ids))}")
    if not ids:
        fail("the cluster lists no brokers; try again")
    if broker is not None:
        return BrokerId(broker)
    return cluster.controller_id if cluster.controller_id in ids else ids[0]


def _log_directories(admin: Admin) -> list[LogDirDescription]:
    """Return none if the brokers do not tell: they are too old, the user is not authorized, or a disk is offline."""
    with suppress(BrokerError, UnsupportedApiError):
        return admin.log_directories()
    return []


def _log_dir_json(directory: LogDirDescription) -> dict[str, Any]:
    return {
        "path": directory.path,
        "size_bytes": directory.size_bytes,
        "disk_bytes": directory.total_bytes,
        "free_bytes": directory.usable_bytes,
    }


def _health_json(checked: ClusterHealth) -> dict[str, Any]:
    return {
        "healthy": checked.is_healthy,
        "controller": checked.controller_id,
        "brokers": list(checked.brokers),
        "brokers_down": {str(broker): reason for broker, reason in checked.brokers_down.items()},
        "offline_log_dirs": list(checked.offline_log_dirs),
        "leaderless_partitions": [str(partition) for partition in checked.leaderless_partitions],
        "under_replicated_partitions": [str(partition) for partition in checked.under_replicated_partitions],
        "unavailable_partitions": {str(name): reason for name, reason in checked.unavailable_partitions.items()},
    }


def _shown(value: object) -> object:
    """Return a field's value as text: "none" for an empty list, and reasons in parentheses."""
    if isinstance(value, Mapping):
        value = [f"{name} ({reason})" for name, reason in value.items()]
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value
