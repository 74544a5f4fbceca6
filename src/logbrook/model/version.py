"""The version of Logbrook, and how its optional parts are installed. The package takes its version from here."""

VERSION = "0.1.0.dev0"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for messages. The package is on no index yet, so it needs a clone."""
    return f"pip install '.[{extra}]' in a clone of Logbrook"
