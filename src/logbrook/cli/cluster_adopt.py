"""`logbrook cluster adopt`: make the data directory of a single node that of the first node of a cluster."""

import asyncio
from typing import TYPE_CHECKING

import typer

from logbrook.cli.failures import refuse, report_failures
from logbrook.cli.settings_options import CONTEXT_SETTINGS, SettingsCommand, with_settings
from logbrook.config import BrokerConfig
from logbrook.config.loading import LoadedSettings
from logbrook.model.identifiers import BrokerId
from logbrook.ports import SystemRandom

if TYPE_CHECKING:
    from logbrook.server.cluster.adoption import Adoption


def add_to(app: typer.Typer) -> None:
    app.command("adopt", cls=SettingsCommand, context_settings=CONTEXT_SETTINGS)(adopt_directory)


@with_settings
def adopt_directory(loaded: LoadedSettings) -> None:
    """Make the data directory of a single node that of the first node of a new cluster.

    Stop the broker first. Nothing is copied: topics, records, groups, transactions and settings stay where they are,
    and the metadata goes to etcd. Then start the broker with --cluster, start others, and add replicas with
    `logbrook cluster move`. There is no way back to a single node. If it is interrupted, run it again.

    Example: logbrook cluster adopt --data /var/lib/logbrook --node 1 --cluster etcd1:2379,etcd2:2379/orders

    It takes the options of serve; only --data, --config, --node and those of the cluster have an effect.
    """
    config = loaded.config
    if not config.cluster.store:
        refuse("--cluster", "give ADDRESSES/NAME of the new cluster, such as 10.0.0.1:2379,10.0.0.2:2379/orders")
    with report_failures():
        adopted = asyncio.run(_adopt(config))
    typer.echo(
        f"adopted {adopted.topic_count} topics with {adopted.partition_count} partitions as node {config.node_id} of "
        f"the cluster {adopted.cluster_id}"
    )
    typer.echo(f"start it with: logbrook serve --node {config.node_id} --cluster {config.cluster.store} ...")


async def _adopt(config: BrokerConfig) -> "Adoption":
    # Imported only here: the other commands of a cluster need no server.
    from logbrook.cli.log_data import opened_with  # noqa: PLC0415
    from logbrook.server.cluster.adoption import adopt  # noqa: PLC0415
    from logbrook.server.cluster.etcd_link import open_link  # noqa: PLC0415

    store = open_link(config).store
    try:
        with opened_with(config) as offline:
            return await adopt(offline.directory, BrokerId(config.node_id), store, offline.clock, SystemRandom())
    finally:
        await store.close()
