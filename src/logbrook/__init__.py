"""Logbrook: a log-structured message broker for Kafka clients."""

from typing import TYPE_CHECKING, Any

from logbrook.model.version import VERSION

if TYPE_CHECKING:
    from logbrook.testing.broker import Broker

__version__ = VERSION
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    # Imported on first access, so that importing the records or the client does not import the broker.
    if name == "Broker":
        from logbrook.testing.broker import Broker  # noqa: PLC0415

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
