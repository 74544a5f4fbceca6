"""Children that end with their parent, even if it is killed.

Linux sends a child the signal that it chose with prctl(PR_SET_PDEATHSIG) when the thread that started it exits. Start
such children from the main thread: a shorter-lived thread would take them with it.
"""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process as soon as its parent exits. Raises OSError.

    With `parent_pid`, the process id of the parent before the fork, a parent that has already exited is noticed too.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if parent_pid is not None and os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)
