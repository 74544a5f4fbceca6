"""A client of Logbrook's JSON protocol that uses only Python's standard library.

logbrook serve --json-port 9095
python examples/json_client.py 127.0.0.1:9095 create orders 3
echo hello | python examples/json_client.py 127.0.0.1:9095 produce orders 0
python examples/json_client.py 127.0.0.1:9095 consume orders 0 --group readers
"""

import argparse
import base64
import json
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import Any

TYPES = (
    "Produce Fetch OffsetCommit OffsetFetch CreateTopic ListTopics DescribeTopic DescribePartition MetricsFetch Ping "
    "Authenticate"
)
TYPE_BYTES = {name: number for number, name in enumerate(TYPES.split(), 1)}
ERROR = 255


class BrokerError(Exception):
    """An error response. `facts` holds its fields: error, message, retriable and others."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(f"{facts['error']}: {facts['message']}")
        self.facts = facts


class JsonClient:
    """`ca` is the file with the certificates that the client trusts; without one there is no TLS."""

    def __init__(self, host: str, port: int, timeout_s: float = 60.0, ca: str | None = None) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        if ca is not None:
            self._socket = ssl.create_default_context(cafile=ca).wrap_socket(self._socket, server_hostname=host)
        self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def request(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return the response. Raises BrokerError; the connection stays usable."""
        body = bytes([TYPE_BYTES[name]]) + json.dumps(fields).encode()
        self._socket.sendall(len(body).to_bytes(4, "big") + body)
        length = int.from_bytes(self._read(4), "big")
        kind, response = self._read(1)[0], json.loads(self._read(length - 1))
        if kind == ERROR:
            raise BrokerError(response)
        return dict(response)

    def produce(self, topic: str, partition: int, values: list[bytes]) -> int:
        """Produce the values, which may be any bytes, and return the offset of the first."""
        records = [{"value_base64": base64.b64encode(value).decode()} for value in values]
        return int(self.request("Produce", topic=topic, partition=partition, records=records)["base_offset"])

    def consume(self, topic: str, partition: int, group: str, wait_ms: int) -> Iterator[bytes]:
        """Yield values from the group's committed offset until none arrives for `wait_ms`. Commits each page."""
        target = {"topic": topic, "partition": partition}
        while True:
            page = self.request("Fetch", **target, group_id=group, max_wait_ms=wait_ms, encoding="base64")
            for record in page["records"]:
                yield base64.b64decode(record.get("value_base64") or "")
            self.request("OffsetCommit", **target, group=group, offset=page["next_offset"])
            if not page["records"]:
                return

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("command", choices=["create", "produce", "consume", "topics"])
    parser.add_argument("topic", nargs="?", default="")
    parser.add_argument("number", nargs="?", type=int, default=0, help="partition; for create, their number")
    parser.add_argument("--group", default="json-client")
    parser.add_argument("--wait-ms", type=int, default=1000)
    parser.add_argument("--user", help="its password is the environment variable JSON_PASSWORD")
    parser.add_argument("--ca", metavar="FILE", help="use TLS, and trust the certificates in this file")
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    client = JsonClient(host, int(port), ca=options.ca)
    if options.user is not None:
        client.request("Authenticate", user=options.user, password=os.environ["JSON_PASSWORD"])
    if options.command == "create":
        client.request("CreateTopic", topic=options.topic, partition_count=options.number or 1)
    elif options.command == "produce":
        client.produce(options.topic, options.number, [line.rstrip(b"\n") for line in sys.stdin.buffer])
    elif options.command == "consume":
        for value in client.consume(options.topic, options.number, options.group, options.wait_ms):
            sys.stdout.buffer.write(value + b"\n")
    else:
        for topic in client.request("ListTopics")["topics"]:
            sys.stdout.write(f"{topic['topic']}\t{topic['partition_count']}\n")
    client.close()


if __name__ == "__main__":
    main()
