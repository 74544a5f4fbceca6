"""`python -m logbrook.testing.exactly_once`: kill Spark queries N times and check that they deliver exactly once.

Exits with 1 if one does not, with 2 if a dependency is missing.
"""

import sys

from logbrook.model.version import install_command


def main() -> int:
    try:
        from logbrook.testing.exactly_once import command  # noqa: PLC0415 - needs a client library
    except ImportError as error:
        sys.stderr.write(f"{error}: {install_command('dev')}\n")
        return 2
    return command.main()


if __name__ == "__main__":
    sys.exit(main())
