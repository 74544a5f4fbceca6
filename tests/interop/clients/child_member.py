"""A group member in its own process, so that it can be killed: `python -m tests.interop.clients.child_member`.

Its arguments are the client's name, the servers, the topic and the options as JSON. It polls forever and writes a line
for each change of its assignment, `assigned 0 1 2`, and for each record, `record PARTITION OFFSET VALUE`, the value in
hexadecimal digits. It ends with its standard input, so that it cannot outlive its parent.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from threading import Thread

from tests.interop.clients.interface import Client, Member, MemberOptions, MortalMember, Received
from tests.interop.clients.process import Process
from tests.interop.waiting import Deadline, wait_until

_CLIENTS = {
    "confluent": ("confluent_client", "ConfluentClient"),
    "kafka-python": ("kafka_python_client", "KafkaPythonClient"),
    "aiokafka": ("aiokafka_client", "AiokafkaClient"),
}


class ChildMember(MortalMember):
    """The parent's side of a member process."""

    def __init__(self, name: str, servers: str, topic: str, options: MemberOptions) -> None:
        self._process = Process(
            [sys.executable, "-m", __spec__.name, name, servers, topic, json.dumps(asdict(options))]
        )
        self._assignment: frozenset[int] = frozenset()
        self._position = 0

    @property
    def assignment(self) -> frozenset[int]:
        return self._assignment

    def poll(self, within_s: float) -> list[Received]:
        deadline = Deadline(within_s)
        records: list[Received] = []

        def look() -> bool:
            assert self._process.return_code is None, self._process.errors.decode()
            records.extend(self._take())
            return bool(records) or deadline.has_passed

        wait_until(look, "a member in another process", within_s + 1)
        return records

    def commit(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.stop()

    def _take(self) -> list[Received]:
        whole, end, _ = bytes(self._process.output[self._position :]).rpartition(b"\n")
        self._position += len(whole) + len(end)
        records = []
        for line in whole.decode().splitlines():
            kind, *words = line.split()
            if kind == "assigned":
                self._assignment = frozenset(map(int, words))
            else:
                partition, offset, value = words
                records.append(Received(int(partition), int(offset), None, bytes.fromhex(value), (), 0, None))
        return records


def _poll_for_ever(member: Member, write: Callable[[str], object]) -> None:
    assignment: frozenset[int] = frozenset()
    while True:
        for record in member.poll(0.1):
            write(f"record {record.partition} {record.offset} {(record.value or b'').hex()}\n")
        if member.assignment != assignment:
            assignment = member.assignment
            write(f"assigned {' '.join(map(str, sorted(assignment)))}\n")
        sys.stdout.flush()


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    name, servers, topic, options = sys.argv[1:]
    Thread(target=_end_with_the_parent, daemon=True).start()
    module, kind = _CLIENTS[name]
    client: Client = getattr(import_module(f"tests.interop.clients.{module}"), kind)()
    _poll_for_ever(client.member(servers, topic, MemberOptions(**json.loads(options))), sys.stdout.write)


if __name__ == "__main__":
    main()
