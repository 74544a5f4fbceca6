"""Errors in received bytes."""

from logbrook.model import LogbrookError


class ProtocolError(LogbrookError):
    """The peer violates the protocol or uses an unsupported part of it. Only its connection is affected."""


class FrameTooLargeError(ProtocolError):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"a frame of {size} bytes exceeds the limit of {size_max}")
        self.size = size
        self.size_max = size_max


class MalformedMessageError(ProtocolError):
    """The bytes are not a valid message of the API and version in its header."""


class UnsupportedApiError(ProtocolError):
    def __init__(self, api_key: int) -> None:
        super().__init__(f"API key {api_key} is not supported")
        self.api_key = api_key


class UnsupportedVersionError(ProtocolError):
    def __init__(self, api_name: str, version: int, first: int, last: int) -> None:
        super().__init__(f"{api_name} version {version} is not supported; versions {first} to {last} are")
        self.api_name = api_name
        self.version = version
