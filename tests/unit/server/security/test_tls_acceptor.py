"""The acceptor of connections with TLS: limits of handshakes, errors of accept, alerts, and its end."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from logbrook.config.security import SecurityConfig
from logbrook.model.event_log import event_logger
from logbrook.ports import SystemClock
from logbrook.server.logs import RateLimitedWarnings
from logbrook.server.probe import ServerProbe
from logbrook.server.security.tls import TlsContexts
from logbrook.server.security.tls_acceptor import TlsAcceptor
from tests.certificates import Certificates

HANDSHAKES_MAX = 4
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class FailingSocket(socket.socket):
    """A listening socket whose next calls of accept raise these errors."""

    errors: list[int]

    def accept(self) -> tuple[socket.socket, object]:
        if self.errors:
            raise OSError(self.errors.pop(0), "planted")
        return super().accept()


class AcceptorCase:
    """A started acceptor, and clients of it."""

    def __init__(self, folder: Path, handshake_s: float = 20.0) -> None:
        self.certificates = Certificates(folder)
        issued = self.certificates.issue()
        ca = str(self.certificates.ca)
        files = {"certificate": str(issued.certificate), "key": str(issued.key), "client_ca": ca}
        loop = asyncio.get_running_loop()
        self.tls = TlsContexts(SecurityConfig(**files, client_certificates="requested"), loop)
        self.probe = ServerProbe()
        self.listening = FailingSocket()
        self.listening.errors = []
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen()
        self.listening.setblocking(False)
        self.connected = 0
        self.acceptor = TlsAcceptor(
            loop,
            [self.listening],
            self._new_protocol,
            self.tls,
            RateLimitedWarnings(event_logger("logbrook.test"), SystemClock()),
            self.probe,
            handshakes_max=HANDSHAKES_MAX,
            handshake_s=handshake_s,
        )

    def _new_protocol(self) -> asyncio.Protocol:
        case = self

        class Counting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                case.connected += 1
                writing = cast(asyncio.WriteTransport, transport)
                writing.write(b"hello")
                writing.close()

        return Counting()

    async def open_silent(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.listening.getsockname())

    async def greeting(self, context: ssl.SSLContext | None = None) -> bytes:
        """Connect with TLS, and return what the server sends."""
        context = context or ssl.create_default_context(cafile=str(self.certificates.ca))
        reader, writer = await asyncio.open_connection(*self.listening.getsockname(), ssl=context)
        try:
            return await reader.read()
        finally:
            writer.close()


Scenario = Callable[[AcceptorCase], Awaitable[None]]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Scenario, handshake_s: float = 20.0) -> None:
        async def main() -> None:
            case = AcceptorCase(tmp_path, handshake_s)
            await case.acceptor.start_serving()
            try:
                await asyncio.wait_for(scenario(case), 20)
            finally:
                case.acceptor.close()
                case.acceptor.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main())

    return run


def test_beyond_the_limit_the_oldest_handshake_is_given_up(run: Callable[..., None]) -> None:
    async def scenario(case: AcceptorCase) -> None:
        silent = [await case.open_silent() for _ in range(2 * HANDSHAKES_MAX)]
        assert await case.greeting() == b"hello"
        for reader, _ in silent[: HANDSHAKES_MAX + 1]:
            assert await reader.read() == b""
        assert case.probe.tls_handshake_failures == HANDSHAKES_MAX + 1
        for _, writer in silent:
            writer.close()

    run(scenario)


def test_a_handshake_that_takes_too_long_is_given_up(run: Callable[..., None]) -> None:
    async def scenario(case: AcceptorCase) -> None:
        reader, writer = await case.open_silent()
        assert await reader.read() == b""
        writer.close()
        assert (case.probe.tls_handshake_failures, case.connected) == (1, 0)

    run(scenario, 0.05)


def test_without_descriptors_accepting_pauses_and_resumes(
    run: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(case: AcceptorCase) -> None:
        case.listening.errors = [errno.ECONNABORTED, errno.EMFILE, errno.EPROTO, errno.ENFILE]
        assert await case.greeting() == b"hello"
        assert case.listening.errors == []

    run(scenario)
    assert "accepting paused" in caplog.text


def test_the_client_is_told_why_its_certificate_is_refused(run: Callable[..., None]) -> None:
    async def scenario(case: AcceptorCase) -> None:
        expired = case.certificates.issue("CN=carol", is_expired=True)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=str(case.certificates.ca))
            context.minimum_version = context.maximum_version = version
            context.load_cert_chain(expired.certificate, expired.key)
            with pytest.raises(ssl.SSLError, match="certificate expired"):
                await case.greeting(context)
        assert (case.probe.tls_handshake_failures, case.connected) == (2, 0)

    run(scenario)


def test_the_end_gives_up_all_handshakes(run: Callable[..., None]) -> None:
    async def scenario(case: AcceptorCase) -> None:
        silent = [await case.open_silent() for _ in range(HANDSHAKES_MAX)]
        assert await case.greeting() == b"hello"
        case.acceptor.close()
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()
        with pytest.raises(OSError, match=r".*"):
            await case.open_silent()

    run(scenario)
