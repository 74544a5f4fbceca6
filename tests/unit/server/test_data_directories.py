"""A broker with two data directories, as its clients and operators see it."""

import asyncio
import errno
import os
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from logbrook.client import Client
from logbrook.client.admin import Admin
from logbrook.client.admin_results import LogDirDescription
from logbrook.config import BrokerConfig, MetricsConfig, NetworkConfig
from logbrook.server.broker import BrokerServer
from logbrook.storage.errors import StorageOfflineError


def test_both_are_used_and_shown_and_one_may_fail(tmp_path: Path) -> None:
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    config = BrokerConfig(
        data=":".join(paths),
        network=NetworkConfig(listen="127.0.0.1:0"),
        metrics=MetricsConfig(listen="127.0.0.1:0"),
    )

    async def run() -> None:
        server = BrokerServer(config)
        await server.start()
        try:
            await asyncio.to_thread(use, server)
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            for number, member in enumerate(server.directory.members):
                member.environment.health.fail(StorageOfflineError("write", "a file", error))
                status = await asyncio.to_thread(health, server)
                assert status == (200 if number == 0 else 503)
        finally:
            await server.abandon()

    def use(server: BrokerServer) -> None:
        with Client(f"127.0.0.1:{server.address[1]}") as client:
            Admin(client).topics.create("orders", 4)
            directories: list[LogDirDescription] = Admin(client).log_directories()
        assert [directory.path for directory in directories] == paths
        assert [sum("orders" in name for name in os.listdir(path)) for path in paths] == [2, 2]

    asyncio.run(run())


def health(server: BrokerServer) -> int:
    assert server.http_address is not None
    try:
        with urlopen(f"http://127.0.0.1:{server.http_address[1]}/healthz") as response:
            return int(response.status)
    except HTTPError as error:
        return error.code
