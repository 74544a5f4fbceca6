"""How a setting is declared: once, with everything that anyone needs to know about it.

The declaration is a pydantic field, so its bounds are enforced wherever the value comes from, and the facts that
pydantic has no place for (unit, Kafka's name, whether it may change while running) ride along for the references that
are generated from it.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """A group of settings: immutable, and an unknown name is an error, not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def setting(
    default: Any,
    doc: str,
    *,
    unit: str | None = None,
    kafka: str | None = None,
    dynamic: bool = False,
    flag: str | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Any:
    """A field of a `Settings`. `kafka` is the name Kafka's tools know it by; `dynamic` ones may change at run time.

    `flag` is for the few that people type: a shorter name on the command line than section and name together.
    """
    facts: dict[str, Any] = {"unit": unit, "kafka": kafka, "dynamic": dynamic, "flag": flag}
    return Field(default, description=doc, ge=at_least, le=at_most, json_schema_extra=facts)
