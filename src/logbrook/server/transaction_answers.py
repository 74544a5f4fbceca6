"""What the requests about transactions answer alike."""

from logbrook.protocol.error_codes import ErrorCode


def producer_fenced_code(code: ErrorCode, version: int, *, fenced_since: int) -> ErrorCode:
    """Clients of old versions of a request know a fenced producer only by its epoch (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
