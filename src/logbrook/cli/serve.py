"""`logbrook serve`: a broker, in the foreground, until it is told to stop."""

import typer

from logbrook.cli.help import SettingsCommand
from logbrook.cli.options import CONTEXT_SETTINGS, with_settings
from logbrook.config.loading import Loaded

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=SettingsCommand, context_settings=CONTEXT_SETTINGS)
@with_settings
def serve(loaded: Loaded) -> None:
    """Run a broker that Kafka clients can talk to.

    Every option is also an environment variable (--listen is LOGBROOK_LISTEN) and a key in the file that --config
    names (`logbrook config show` prints such a file). A flag wins over the environment, and that over the file.

    A SIZE is 64MiB, 1GiB or a number of bytes; a DURATION is 500ms, 30s, 7d or a number of milliseconds.
    """
    # The server is imported when the settings are known to be right, so that everything else stays quick.
    from logbrook.server.run import run  # noqa: PLC0415

    raise typer.Exit(run(loaded.config))
