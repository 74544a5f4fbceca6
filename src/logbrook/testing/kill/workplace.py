"""Where a run happens: a directory, and a guardian of it and of what is started there."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from logbrook.testing.kill.guardian import Guardian


@contextmanager
def workplace(name: str) -> Iterator[tuple[str, Guardian]]:
    """Both are gone afterwards, and what was started with them."""
    directory = tempfile.mkdtemp(prefix=f"logbrook-{name}-")
    try:
        with Guardian() as guardian:
            guardian.watch_directory(directory)
            yield directory, guardian
    finally:
        shutil.rmtree(directory, ignore_errors=True)
