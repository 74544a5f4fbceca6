"""CPU time of the ACL check per topic, as the handlers of Produce and Fetch make it, with 10,000 ACLs.

Half of the ACLs are literal and half are prefixed, with prefixes of several lengths, for 100 principals. A decision
that is not cached is measured with an empty cache, as after a change of the ACLs.
"""

import time
from collections.abc import Callable

from bench.rows import Row
from logbrook.config.security import SecurityConfig
from logbrook.core.acls import AclBinding, AclOperation, Acls, PatternType, PermissionType, ResourceType
from logbrook.model.security import Principal
from logbrook.ports import SystemClock
from logbrook.server.api import RequestContext
from logbrook.server.security.audit import AuditLog
from logbrook.server.security.authorizer import Authorizer
from logbrook.server.session import ConnectionSession

_ACLS = 10_000
_PRINCIPALS = 100
_TOPICS = 1_000
_ROUNDS = 20
_CACHED_US_MAX = 2.0
_UNCACHED_US_MAX = 1_000.0


def run() -> list[Row]:
    authorizer, acls, context = _authorizer()
    names = [f"team-{number % 50}.topic-{number}" for number in range(_TOPICS)]

    def check_all() -> None:
        for name in names:
            if authorizer.is_enabled:
                authorizer.check(context, AclOperation.READ, ResourceType.TOPIC, name)

    def forget() -> None:
        acls.configure((), allows_without_acl=False)

    uncached_us = _cpu_us(check_all, forget)
    cached_us = _cpu_us(check_all, lambda: None)
    title = f"ACL check per topic, {_ACLS:,} ACLs"
    return [
        Row(f"{title}, cached: CPU", cached_us, "us", _CACHED_US_MAX, higher_is_better=False),
        Row(f"{title}, not cached: CPU", uncached_us, "us", _UNCACHED_US_MAX, higher_is_better=False),
    ]


def _authorizer() -> tuple[Authorizer, Acls, RequestContext]:
    acls = Acls()
    reader = AclBinding(
        ResourceType.TOPIC, PatternType.LITERAL, "*", "User:reader", "*", AclOperation.READ, PermissionType.ALLOW
    )
    others = [
        reader._replace(
            pattern_type=PatternType.LITERAL if number % 2 else PatternType.PREFIXED,
            name=f"team-{number % 50}.topic-{number}",
            principal=f"User:user-{number % _PRINCIPALS}",
            operation=AclOperation(AclOperation.READ + number % 4),
        )
        for number in range(_ACLS - 1)
    ]
    for key, value in acls.create([reader, *others]):
        acls.replay(key, value)
    assert len(acls) == _ACLS
    authorizer = Authorizer(SecurityConfig(authorization=True), acls, AuditLog(SystemClock()))
    session = ConnectionSession("10.0.0.1", principal=Principal("User", "reader"))
    return authorizer, acls, RequestContext(0, "bench", session)


def _cpu_us(check_all: Callable[[], None], before: Callable[[], None]) -> float:
    """Return the CPU time per topic, of the best round."""
    best_s = float("inf")
    for _ in range(_ROUNDS):
        before()
        started_s = time.process_time()
        check_all()
        best_s = min(best_s, time.process_time() - started_s)
    return best_s / _TOPICS * 1e6
