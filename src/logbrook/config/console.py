"""What may be set for the web console, and who can reach it."""

from ipaddress import ip_address

from logbrook.config.setting import Settings, setting

# Where it is when nobody says otherwise.
CONSOLE_LISTEN = "127.0.0.1:9080"
# No setting, because settings are shown and this is a secret.
TOKEN_VARIABLE = "LOGBROOK_CONSOLE_TOKEN"


class ConsoleConfig(Settings):
    """The settings of the web console that is started with the broker."""

    listen: str = setting(
        "",
        "HOST:PORT for the web console and the HTTP API, or a port of 127.0.0.1 alone; empty for none.",
        flag="console",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
