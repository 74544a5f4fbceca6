"""What can be wrong with a record batch."""

from logbrook.model import LogbrookError


class RecordsError(LogbrookError):
    """A record batch that cannot be taken as it is."""


class CorruptBatchError(RecordsError):
    """The bytes are not a whole batch whose checksum holds: bit rot, a torn write, or a broken sender."""


class UnsupportedMagicError(RecordsError):
    """A message format other than v2."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"message format v{magic} is not supported, only v2 is")
        self.magic = magic


class InvalidBatchError(RecordsError):
    """The checksum holds, but the header says something that its sender may not say or that cannot be true."""


class CodecError(RecordsError):
    """Compressed bytes that do not decompress."""


class RecordsTooLargeError(RecordsError):
    """A batch that decompresses to more than the bound."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the batch decompresses to more than {bytes_max} bytes")
        self.bytes_max = bytes_max
