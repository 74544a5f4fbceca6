"""Our codec against kio's, which is generated from Kafka's definitions: every message, every version."""

import importlib
import pkgutil

import pytest

from logbrook.protocol.decoding import decode
from logbrook.protocol.reader import Reader
from logbrook.protocol.schema import ApiMessage
from tests.unit.protocol.every_message import CASES, MESSAGES, Case, encoded, plain
from tests.unit.protocol.kio_oracle import from_kio, kio_class, kio_decode, kio_encode, to_kio
from tests.unit.protocol.samples import Sampler

SAMPLES = 12
VERSIONS = {message: [case for case in CASES if case.message is message] for _, message in MESSAGES}


@pytest.mark.parametrize("message", VERSIONS, ids=lambda message: message.__name__)
def test_both_codecs_write_the_same_bytes_and_read_the_same_values(message: type[ApiMessage]) -> None:
    for case in VERSIONS[message]:
        check_against_kio(case)


def check_against_kio(case: Case) -> None:
    entity_class = kio_class(case)
    for number in range(SAMPLES):
        sampler = Sampler(f"{case} {number}", full=number == 0)
        theirs = to_kio(sampler.message(case.message, case.version), entity_class)
        ours = from_kio(theirs, case.message)
        data = encoded(ours, case.version)  # type: ignore[arg-type]
        assert data == kio_encode(theirs), case
        assert kio_decode(entity_class, data) == theirs, case
        decoded = decode(case.message, case.version, Reader(memoryview(data)))
        assert plain(decoded, case.version) == plain(ours, case.version), case


def test_every_version_of_kio_is_generated() -> None:
    for module, message in MESSAGES:
        package = importlib.import_module(f"kio.schema.{module}")
        versions = sorted(int(info.name[1:]) for info in pkgutil.iter_modules(package.__path__))
        assert (versions[0], versions[-1]) == message.VERSIONS
