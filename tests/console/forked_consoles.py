"""Run consoles in forked processes until standard input ends: `python -m tests.console.forked_consoles JSON`.

JSON is a list of lists: the arguments of `logbrook console` for each. The libraries of the console, which take longer
to import than a console takes to start, are imported once. Exits with status 0 if all consoles did.
"""

import json
import os
import sys

import logbrook.console.app  # noqa: F401 - imported for the forked processes
from logbrook.cli.main import app


def main() -> None:
    children = []
    for arguments in json.loads(sys.argv[1]):
        child = os.fork()
        if child == 0:
            app(["console", *arguments])
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(0 if not any(codes) else f"the consoles exited with {codes}")


if __name__ == "__main__":
    main()
