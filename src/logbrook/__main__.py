"""`python -m logbrook`: the `logbrook` command."""

from logbrook.cli.main import app

if __name__ == "__main__":
    app(prog_name="logbrook")
