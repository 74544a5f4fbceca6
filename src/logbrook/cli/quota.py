"""`logbrook quota`: limits of users, client ids and addresses."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from logbrook.cli.connection import Bootstrap, Json, connected_admin
from logbrook.cli.failures import fail, refuse
from logbrook.cli.terminal import Column, ParagraphCommand, Yes, confirm, print_rows
from logbrook.client.admin_quotas import CLIENT_ID_PART, IP_PART, USER_PART, QuotaInfo, target_text
from logbrook.config.values import read_quantity
from logbrook.model.text import size_text

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

_PRODUCER_BYTE_RATE = "producer_byte_rate"
_CONSUMER_BYTE_RATE = "consumer_byte_rate"
_BYTE_RATES = (_PRODUCER_BYTE_RATE, _CONSUMER_BYTE_RATE)
_QUOTAS = {
    _PRODUCER_BYTE_RATE: "bytes per second",
    _CONSUMER_BYTE_RATE: "bytes per second",
    "request_percentage": "percent of a core",
    "controller_mutation_rate": "partitions created or deleted per second",
    "connection_creation_rate": "connections per second, for --ip",
}
_EPILOG = (
    "Quotas: "
    + ", ".join(f"{name} ({unit})" for name, unit in _QUOTAS.items())
    + ". A rate in bytes may be a size (10MiB)."
)
_DEFAULT = "<default>"
_ARGUMENT = "QUOTA=VALUE..."

User = Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="Name of the user.")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="All users without a quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", "-c", metavar="ID", help="Client id.")]
DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="All client ids without a quota of their own.")
]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Address of clients.")]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="All addresses without a quota of their own.")]


@app.command("set", cls=ParagraphCommand, epilog=_EPILOG)
def change(
    limits: Annotated[list[str], typer.Argument(metavar=_ARGUMENT, help="Limits, with Kafka's names.")],
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Set limits of a user, a client id, a client id of a user, or an address. Other limits of it stay.

    Clients above a limit are slowed down, not refused. The limit holds on each broker. The most specific quota applies:
    user and client id together, then user, then client id, each before its default.

    Examples: logbrook quota set --user etl producer_byte_rate=10MiB consumer_byte_rate=50MiB; logbrook quota set
    --default-user request_percentage=50
    """
    target = _target(user, default_user, client_id, default_client_id, ip, default_ip)
    if not target:
        refuse("--user / --client-id / --ip", "say whose quota to set, such as --user alice")
    values = _parse_limits(limits)
    with connected_admin(bootstrap) as admin:
        admin.quotas.set(target, values)
        typer.echo(f"set {', '.join(values)} of {target_text(target)}")


@app.command("list", cls=ParagraphCommand)
def show(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List quotas: all, or those of a user (also with client ids), a client id or an address.

    JSON: a list of {"entity", "quotas"}: the parts "user", "client-id" and "ip", null for a default, and the limits by
    name.
    """
    target = _target(user, default_user, client_id, default_client_id, ip, default_ip)
    with connected_admin(bootstrap) as admin:
        quotas = admin.quotas.select(target)
    if as_json:
        print_rows([{"entity": quota.entity, "quotas": quota.limits} for quota in quotas], (), as_json=True)
        return
    columns: tuple[Column, ...] = ("user", "client id", "ip", "quota", "value")
    print_rows([row for quota in quotas for row in _rows(quota)], columns)
    if not quotas:
        typer.echo("there are no such quotas; `logbrook quota set` sets one", err=True)


@app.command(cls=ParagraphCommand, epilog=_EPILOG)
def remove(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="QUOTA...", help="Limits to remove; default: all of it.")
    ] = None,
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Remove limits of a user, a client id, a client id of a user, or an address.

    Example: logbrook quota remove --user etl producer_byte_rate
    """
    target = _target(user, default_user, client_id, default_client_id, ip, default_ip)
    if not target:
        refuse("--user / --client-id / --ip", "say whose quota to remove, such as --user alice")
    with connected_admin(bootstrap) as admin:
        existing = [key for quota in admin.quotas.select(target) if quota.entity == target for key in quota.limits]
        chosen = names or existing
        for name in chosen or [""]:
            if name not in existing:
                missing = f"quota {name}" if name else "quotas"
                fail(f"{target_text(target)} has no {missing}; `logbrook quota list` shows all")
        confirm(f"Remove {', '.join(chosen)} of {target_text(target)}?", yes)
        admin.quotas.remove(target, chosen)
        typer.echo(f"removed {', '.join(chosen)} of {target_text(target)}")


def _target(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> dict[str, str | None]:
    """Return the entity that the options name; end the command if they contradict each other."""
    parts = {
        USER_PART: (user, default_user),
        CLIENT_ID_PART: (client_id, default_client_id),
        IP_PART: (ip, default_ip),
    }
    for part, (name, is_default) in parts.items():
        if name is not None and is_default:
            refuse(f"--{part} / --default-{part}", "give one of them")
        if name == "":
            refuse(f"--{part}", f"the name is empty; --default-{part} is for all")
    target = {part: name for part, (name, is_default) in parts.items() if name is not None or is_default}
    if IP_PART in target and len(target) > 1:
        refuse("--ip", "quotas of addresses cannot be combined with users and client ids")
    return target


def _parse_limits(arguments: Iterable[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for argument in arguments:
        name, separator, text = argument.partition("=")
        if not name or not separator:
            refuse(_ARGUMENT, f"{argument!r} is not QUOTA=VALUE, such as producer_byte_rate=10MiB")
        if name not in _QUOTAS:
            refuse(_ARGUMENT, f"there is no quota {name!r}; there are {', '.join(_QUOTAS)}")
        if name in values:
            refuse(_ARGUMENT, f"{name} is given twice")
        values[name] = _parse_limit(name, text.strip())
    return values


def _parse_limit(name: str, text: str) -> float:
    try:
        value = float(read_quantity(text, "bytes")) if name in _BYTE_RATES else float(text)
    except (ValueError, KeyError):
        forms = "a number or a size such as 10MiB" if name in _BYTE_RATES else "a number"
        refuse(_ARGUMENT, f"{name}={text}, but it must be {forms}")
    if not 0 < value < float("inf"):
        refuse(_ARGUMENT, f"{name}={text}, but it must be more than 0; `logbrook quota remove` removes a limit")
    return value


def _rows(quota: QuotaInfo) -> list[dict[str, Any]]:
    names = {part: _DEFAULT if name is None else name for part, name in quota.entity.items()}
    entity = {"user": names.get(USER_PART), "client_id": names.get(CLIENT_ID_PART), "ip": names.get(IP_PART)}
    return [
        entity | {"quota": key, "value": f"{size_text(value)}/s" if key in _BYTE_RATES else f"{value:g}"}
        for key, value in quota.limits.items()
    ]
