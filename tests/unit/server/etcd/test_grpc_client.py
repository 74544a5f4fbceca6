"""Calls of gRPC, against a server that answers as told."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from struct import pack

import pytest

h2 = pytest.importorskip("h2", reason="h2 IS NOT INSTALLED: run `make test`, which installs it")

from h2.config import H2Configuration  # noqa: E402
from h2.connection import H2Connection  # noqa: E402
from h2.errors import ErrorCodes  # noqa: E402
from h2.events import DataReceived, RequestReceived  # noqa: E402

from logbrook.server.etcd.grpc_client import UNAVAILABLE, UNKNOWN, GrpcConnection, GrpcError  # noqa: E402

RESPONSE = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0")]

Answer = Callable[[H2Connection, int], None]


class GrpcServer(asyncio.Protocol):
    """Calls `answer` for each call, and keeps the headers and data that it got."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.headers: dict[str, str] = {}
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.initiate_connection()
        transport.write(self._http.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._http.receive_data(data):
            if isinstance(event, RequestReceived):
                self.headers = {str(name): str(value) for name, value in event.headers}
                self._answer(self._http, event.stream_id)
            elif isinstance(event, DataReceived):
                self.data += event.data
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self._transport.write(self._http.data_to_send())


def run(answer: Answer, check: Callable[[GrpcConnection, GrpcServer], Awaitable[None]]) -> None:
    async def main() -> None:
        protocol = GrpcServer(answer)
        server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                connection = await GrpcConnection.connect("127.0.0.1", server.sockets[0].getsockname()[1], None)
                await check(connection, protocol)
            connection.close()
        finally:
            server.close()

    asyncio.run(main())


def frame(message: bytes) -> bytes:
    return pack(">BL", 0, len(message)) + message


def answering(
    *messages: bytes, headers: Sequence[tuple[str, str]] = RESPONSE, trailers: Sequence[tuple[str, str]] = OK
) -> Answer:
    def answer(http: H2Connection, number: int) -> None:
        http.send_headers(number, [*headers])
        for message in messages:
            http.send_data(number, message)
        http.send_headers(number, [*trailers], end_stream=True)

    return answer


def test_messages_are_received_until_the_server_ends_the_call() -> None:
    async def check(connection: GrpcConnection, server: GrpcServer) -> None:
        call = connection.open("/service/method", [("token", "t")])
        await call.send(b"request", is_last=True)
        assert [await call.receive() for _ in range(3)] == [b"first", b"", None]
        call.close()
        assert server.data == frame(b"request")
        assert (server.headers[":path"], server.headers["te"], server.headers["token"]) == (
            "/service/method",
            "trailers",
            "t",
        )

    # Messages need not begin where frames do.
    data = frame(b"first") + frame(b"")
    run(answering(data[:3], data[3:8], data[8:]), check)


def test_a_status_in_the_trailers_or_in_the_headers_is_an_error() -> None:
    async def check(connection: GrpcConnection, _: GrpcServer) -> None:
        with pytest.raises(GrpcError, match=r"^no leader: 50 %$") as caught:
            await connection.open("/service/method").receive()
        assert caught.value.code == UNAVAILABLE

    status = [("grpc-status", "14"), ("grpc-message", "no leader: 50 %25")]
    run(answering(trailers=status), check)
    run(lambda http, number: http.send_headers(number, [*RESPONSE, *status], end_stream=True), check)


@pytest.mark.parametrize(
    ("headers", "trailers", "code"),
    [([(":status", "503")], [("other", "value")], UNAVAILABLE), (RESPONSE, [("other", "value")], UNKNOWN)],
)
def test_an_answer_without_a_status_is_an_error(
    headers: list[tuple[str, str]], trailers: list[tuple[str, str]], code: int
) -> None:
    async def check(connection: GrpcConnection, _: GrpcServer) -> None:
        with pytest.raises(GrpcError) as caught:
            await connection.open("/service/method").receive()
        assert caught.value.code == code

    run(answering(headers=headers, trailers=trailers), check)


@pytest.mark.parametrize("message", [b"\1" + frame(b"compressed")[1:], pack(">BL", 0, 2**31)])
def test_an_invalid_message_ends_the_call(message: bytes) -> None:
    async def check(connection: GrpcConnection, _: GrpcServer) -> None:
        with pytest.raises(OSError, match="invalid message"):
            await connection.open("/service/method").receive()

    run(answering(message), check)


def test_a_call_that_the_server_resets_does_not_end_the_others() -> None:
    numbers: list[int] = []

    def answer(http: H2Connection, number: int) -> None:
        numbers.append(number)
        if len(numbers) == 1:
            http.reset_stream(number, ErrorCodes.CANCEL)
        else:
            answering(frame(b"answer"))(http, number)

    async def check(connection: GrpcConnection, _: GrpcServer) -> None:
        with pytest.raises(OSError, match="closed the call"):
            await connection.open("/service/method").receive()
        assert await connection.open("/service/method").receive() == b"answer"

    run(answer, check)


@pytest.mark.parametrize("code", [ErrorCodes.NO_ERROR, ErrorCodes.ENHANCE_YOUR_CALM])
def test_all_calls_end_on_a_connection_that_the_server_shuts_down(code: ErrorCodes) -> None:
    """Also those that it would finish: h2 accepts no frames after a GOAWAY."""

    async def check(connection: GrpcConnection, _: GrpcServer) -> None:
        call = connection.open("/service/method")
        while connection.is_open:
            await asyncio.sleep(0)
        with pytest.raises(OSError, match="closed"):
            connection.open("/service/method")
        with pytest.raises(OSError, match="shuts the connection down"):
            await call.receive()
        with pytest.raises(OSError, match="shuts the connection down"):
            await call.send(b"request")

    run(lambda http, _: http.close_connection(code), check)


def test_an_answer_that_violates_http2_ends_the_connection() -> None:
    class Other(GrpcServer):
        def data_received(self, data: bytes) -> None:
            # A frame with data that belongs to no call.
            self._transport.write(bytes(9))

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Other(answering()), "127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                connection = await GrpcConnection.connect("127.0.0.1", server.sockets[0].getsockname()[1], None)
                with pytest.raises(OSError, match="HTTP/2 protocol error"):
                    await connection.open("/service/method").receive()
                assert not connection.is_open
        finally:
            server.close()

    asyncio.run(main())


def test_a_call_that_is_closed_here_is_reset() -> None:
    async def check(connection: GrpcConnection, server: GrpcServer) -> None:
        call = connection.open("/service/method")
        waiting = asyncio.create_task(call.receive())
        await asyncio.sleep(0)
        call.close()
        with pytest.raises(OSError, match="closed"):
            await waiting
        assert connection.is_open
        assert server is not None

    run(lambda _http, _number: None, check)
