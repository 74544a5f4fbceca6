"""Our codec against kio's, which is generated from Kafka's own definitions: every API, every version, both sides."""

import importlib
import pkgutil

import pytest

from logbrook.protocol.decoding import decode
from logbrook.protocol.reader import Reader
from tests.unit.protocol.every_message import CASES, MESSAGES, Case, encoded, plain
from tests.unit.protocol.kio_oracle import from_kio, kio_class, kio_decode, kio_encode, to_kio
from tests.unit.protocol.samples import Sampler

SAMPLES = 12


@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_codecs_write_the_same_bytes_and_read_the_same_values(case: Case) -> None:
    entity_class = kio_class(case)
    for number in range(SAMPLES):
        sampler = Sampler(f"{case} {number}", full=number == 0)
        theirs = to_kio(sampler.message(case.message, case.version), entity_class)
        ours = from_kio(theirs, case.message)
        data = encoded(ours, case.version)  # type: ignore[arg-type]
        assert data == kio_encode(theirs)
        assert kio_decode(entity_class, data) == theirs
        decoded = decode(case.message, case.version, Reader(memoryview(data)))
        assert plain(decoded, case.version) == plain(ours, case.version)


def test_every_version_that_kio_has_is_there() -> None:
    for module, message in MESSAGES:
        package = importlib.import_module(f"kio.schema.{module}")
        versions = sorted(int(info.name[1:]) for info in pkgutil.iter_modules(package.__path__))
        assert (versions[0], versions[-1]) == message.VERSIONS
