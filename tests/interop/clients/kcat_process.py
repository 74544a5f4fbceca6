"""One run of kcat, with settings for short timeouts and with its errors translated."""

import signal
from collections.abc import Sequence

from tests.interop.clients.confluent_settings import code_in
from tests.interop.clients.interface import RefusedError
from tests.interop.clients.process import Process
from tests.interop.waiting import WITHIN_S

_NO_FAILURE = (None, 0, -signal.SIGTERM, -signal.SIGKILL)
_QUICK = (
    "log_level=0",
    "reconnect.backoff.ms=10",
    "reconnect.backoff.max.ms=50",
    "retry.backoff.ms=20",
    "socket.timeout.ms=10000",
    "topic.metadata.refresh.fast.interval.ms=20",
    "topic.metadata.propagation.max.ms=250",
)


class KcatProcess(Process):
    """`settings` are librdkafka's."""

    def __init__(self, path: str, servers: str, arguments: Sequence[str | bytes], settings: Sequence[str] = ()) -> None:
        options = [word for setting in (*_QUICK, *settings) for word in ("-X", setting)]
        super().__init__([path, "-b", servers, *options, *arguments])

    def finish(self, within_s: float = WITHIN_S) -> None:
        """Raises RefusedError, too."""
        super().finish(within_s)
        self.check()

    def check(self) -> None:
        """Raises RefusedError if it has failed."""
        if self.return_code in _NO_FAILURE:
            return
        text = self.errors.decode(errors="replace")
        code = code_in(text)
        if code is not None:
            raise RefusedError(code, text)
        raise AssertionError(f"kcat failed: {text}")
