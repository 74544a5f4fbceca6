"""The interface of the servers of object stores, whatever their protocol is."""

from typing import Protocol


class StoreServer(Protocol):
    """A running server with an empty bucket."""

    @property
    def address(self) -> str:
        """Host and port."""

    def location(self, name: str) -> str:
        """Return the location of a table in the bucket."""

    def options(self, address: str | None = None) -> dict[str, str]:
        """Return the options of a table for this server, or for a proxy in front of it."""

    def hadoop_options(self) -> dict[str, str]:
        """Return the same with the credentials in Hadoop's names."""
