"""Errors of the HTTP API: `{"error": {"code": ..., "message": ...}}` with a matching HTTP status.

The code is Kafka's if the cluster refused the request.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from logbrook.client import BrokerError, ConnectFailedError, TimedOutError
from logbrook.client.errors import SaslRefusedError
from logbrook.console.cluster import AccessClosedError, describe_error
from logbrook.console.guard import BODY_BYTES_MAX, BodyTooLargeError, error_response
from logbrook.console.messages import NoSuchPartitionError
from logbrook.console.workspace import SessionEndedError
from logbrook.model import LogbrookError
from logbrook.protocol.error_codes import ErrorCode

_REASONS_MAX = 5
_BAD_REQUEST = 400
_NOT_FOUND = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND})
_CONFLICT = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NON_EMPTY_GROUP})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_ANSWERS: Mapping[type[LogbrookError], tuple[int, str]] = {
    SessionEndedError: (401, "LOGIN_NEEDED"),
    AccessClosedError: (401, "LOGIN_NEEDED"),
    SaslRefusedError: (401, "LOGIN_NEEDED"),
    TimedOutError: (504, "TIMED_OUT"),
    ConnectFailedError: (503, "NO_BROKER"),
}


def add_error_handlers(api: FastAPI) -> None:
    @api.exception_handler(LogbrookError)
    async def cluster_error(_: Request, error: LogbrookError) -> JSONResponse:
        status, code = status_of(error)
        return error_response(status, code, describe_error(error))

    @api.exception_handler(RequestValidationError)
    async def invalid_request(_: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(_BAD_REQUEST, "INVALID_REQUEST", describe_invalid(error.errors()))

    @api.exception_handler(ValueError)
    async def invalid_value(_: Request, error: ValueError) -> JSONResponse:
        return error_response(_BAD_REQUEST, "INVALID_REQUEST", str(error))

    @api.exception_handler(BodyTooLargeError)
    async def body_too_large(_: Request, __: BodyTooLargeError) -> JSONResponse:
        return error_response(413, "TOO_LARGE", f"a request may have at most {BODY_BYTES_MAX} bytes")

    @api.exception_handler(HTTPException)
    async def unknown_path(_: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == _BAD_REQUEST:
            message = "the body cannot be parsed: it is not UTF-8, or its JSON is nested too deeply"
            return error_response(_BAD_REQUEST, "INVALID_REQUEST", message)
        return error_response(error.status_code, "NO_SUCH_CALL", f"{error.detail}; /api/docs lists all calls")


async def refuse_unknown_parameters(request: Request) -> None:
    """Raise ValueError for a query parameter that a call does not have: ignoring a filter would widen the request."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = _query_parameters(route.dependant)
    for name in request.query_params:
        if name not in known:
            names = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ValueError(f"there is no parameter {name!r}: {names}")


def describe_invalid(details: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence with the place and the reason of each error in a request."""
    reasons = [_describe_detail(detail) for detail in details[:_REASONS_MAX]]
    if len(details) > _REASONS_MAX:
        reasons.append(f"and {len(details) - _REASONS_MAX} more errors")
    return "; ".join(reasons)


def error_document(error: LogbrookError) -> str:
    """Return the JSON of an error, for a response that has begun."""
    _, code = status_of(error)
    return json.dumps({"error": {"code": code, "message": describe_error(error)}}, ensure_ascii=False)


def status_of(error: LogbrookError) -> tuple[int, str]:
    """Return the HTTP status and the code of an error."""
    match error:
        case BrokerError():
            for codes, status in ((_NOT_FOUND, 404), (_CONFLICT, 409), (_TOO_LARGE, 413), (_FORBIDDEN, 403)):
                if error.code in codes:
                    return status, error.code.name
            return (503 if error.is_retriable else _BAD_REQUEST), error.code.name
        case NoSuchPartitionError():
            return 404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        case _:
            return next((answer for kind, answer in _ANSWERS.items() if isinstance(error, kind)), (502, "BAD_ANSWER"))


def _describe_detail(detail: Mapping[str, Any]) -> str:
    source, *path = detail["loc"]
    reason = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "json_invalid":
        cause = detail.get("ctx", {}).get("error", "")
        return f"the body is not JSON: {cause} at character {path[0] if path else 0}"
    if source == "body" and not path:
        return "the body must be a JSON object, sent with Content-Type: application/json (curl --json does both)"
    if detail["type"] == "extra_forbidden":
        reason = "there is no such field"
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"{place}: {reason}"


def _query_parameters(dependant: Any) -> set[str]:
    names = {field.alias for field in dependant.query_params}
    return names.union(*(_query_parameters(part) for part in dependant.dependencies))
