"""Logbrook, started with `logbrook serve` and its defaults."""

import sys
from pathlib import Path

from bench.peers.system import CommandServer, Promise, Server, System, Variant, free_address
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
                "in a synced write-ahead log; one sync covers all waiting requests",
                is_default=True,
            ),
            Promise.LESS: Variant(
                Promise.LESS, "`--durability interval`", "in the page cache; synced within a second (survives SIGKILL)"
            ),
        }

    def server(self, variant: Variant, directory: Path) -> Server:
        address = free_address()
        durability = {Promise.DISK: "fsync", Promise.LESS: "interval"}[variant.promise]
        command = [sys.executable, "-m", "logbrook", "serve", "--data", str(directory / "data"), "--listen", address]
        # The metrics listener stays on, as by default, but on a free port.
        command += ["--durability", durability, "--metrics", free_address()]
        return CommandServer(command, directory, address)
