"""Children that end with their parent."""

import os
import subprocess
import sys

SECONDS_MAX = 60
# The child prints its process id and then waits for a signal; the parent exits or is killed.
_PARENT = """
import os, signal, sys
from logbrook.ports.parent_process import end_with_parent
parent = os.getpid()
reader, writer = os.pipe()
if os.fork() == 0:
    end_with_parent(parent)
    os.write(writer, b"x")
    signal.pause()
os.read(reader, 1)
{end}
"""
_ORPHAN = """
import os, sys
from logbrook.ports.parent_process import end_with_parent
end_with_parent(os.getpid())
sys.stdout.write("still there")
"""


def output_of(script: str) -> bytes:
    """Run a script until all its processes have closed standard output. Raises TimeoutExpired if one stays."""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ) as process:
        return process.communicate(timeout=SECONDS_MAX)[0]


def test_a_child_ends_with_its_parent_however_that_ends() -> None:
    assert output_of(_PARENT.format(end="os.kill(parent, signal.SIGKILL)")) == b""
    assert output_of(_PARENT.format(end="sys.exit()")) == b""


def test_a_child_whose_parent_has_already_exited_ends_at_once() -> None:
    assert output_of(_ORPHAN) == b""
