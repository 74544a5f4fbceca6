"""Brokers that enforce ACLs need the right to replicate."""

from typing import Any

import pytest

from logbrook.config import BrokerConfig
from logbrook.model.event_log import LogEvent, observe_events
from logbrook.server.cluster.peer_security import warn_of_missing_rights


@pytest.mark.parametrize(
    ("security", "principal"),
    [
        ({"authorization": False}, None),
        ({"authorization": True}, "User:ANONYMOUS"),
        ({"authorization": True, "super_users": "User:ANONYMOUS"}, None),
        ({"authorization": True, "protocol": "SASL_SSL", "super_users": "User:admin"}, "User:broker"),
        ({"authorization": True, "protocol": "SASL_SSL", "super_users": "User:admin;User:broker"}, None),
        ({"authorization": True, "protocol": "SSL"}, None),
    ],
)
def test_a_user_of_brokers_that_is_no_super_user_is_warned_of(security: Any, principal: str | None) -> None:
    config = BrokerConfig(security=security, cluster={"username": "broker"})  # type: ignore[arg-type]
    events: list[LogEvent] = []
    with observe_events(lambda _logger, _level, event, _error: events.append(event)):
        warn_of_missing_rights(config)
    assert [str(event.fields["principal"]) for event in events] == ([] if principal is None else [principal])
