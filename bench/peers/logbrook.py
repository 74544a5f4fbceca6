"""Logbrook itself, by its command, with its defaults."""

import sys
from pathlib import Path

from bench.peers.ports import free_address
from bench.peers.system import CommandServer, Promise, Server, System, Variant
from logbrook.model.version import VERSION


class Logbrook(System):
    name = "Logbrook"
    load = "kafka"
    codecs = ("none", "zstd")
    has_rebalances = True
    has_transactions = True

    def version(self) -> str:
        return VERSION

    def variants(self) -> dict[Promise, Variant]:
        return {
            Promise.DISK: Variant(
                Promise.DISK,
                "`--durability fsync`, its default",
                "in a write-ahead log that was synced; one sync serves all that wait",
                is_default=True,
            ),
            Promise.LESS: Variant(
                Promise.LESS, "`--durability interval`", "with the kernel; synced within a second (survives SIGKILL)"
            ),
        }

    def server(self, variant: Variant, directory: Path) -> Server:
        address = free_address()
        durability = {Promise.DISK: "fsync", Promise.LESS: "interval"}[variant.promise]
        command = [sys.executable, "-m", "logbrook", "serve", "--data", str(directory / "data"), "--listen", address]
        # Its listener for metrics stays on, as by default, but on a port that is free.
        command += ["--durability", durability, "--metrics", free_address()]
        return CommandServer(command, directory, address)
