"""What can be wrong with what comes over the wire."""

from logbrook.model import LogbrookError


class ProtocolError(LogbrookError):
    """The sender does not speak the protocol, or not this part of it. Nothing but its connection is affected."""


class FrameTooLargeError(ProtocolError):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"a frame of {size} bytes is outside 0 to {size_max}")
        self.size = size
        self.size_max = size_max


class MalformedMessageError(ProtocolError):
    """The bytes are not the message that its header says they are."""


class UnsupportedApiError(ProtocolError):
    def __init__(self, api_key: int) -> None:
        super().__init__(f"API key {api_key} is not served here")
        self.api_key = api_key


class UnsupportedVersionError(ProtocolError):
    def __init__(self, api_name: str, version: int, first: int, last: int) -> None:
        super().__init__(f"{api_name} version {version} is outside {first} to {last}")
        self.api_name = api_name
        self.version = version
