"""Every error that talking to an API server can raise.

    ApiError                    the server, or the way to it, said no
    ├── Unreachable             no answer: refused, reset, timed out (try again)
    ├── Busy                    429, 500, 502, 503, 504: the server asks for patience (try again, after `retry_after`)
    ├── NotFound                404
    ├── Conflict                409: somebody else was faster
    │   └── AlreadyExists       409 on create
    ├── Gone                    410: the resourceVersion is too old, list again
    ├── Invalid                 400 or 422: the object was refused, or a JSON patch test failed
    ├── Forbidden               401 or 403
    └── Unexpected              any other code

A reconciler raises `Retry(after)` to be called again; every other exception is a failure, logged and tried again with
backoff.
"""

from __future__ import annotations

import orjson


class ApiError(Exception):
    """The server, or the way to it, said no."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class Unreachable(ApiError):
    """No answer; whether the request was carried out is unknown."""


class Busy(ApiError):
    """The server can't serve this now."""


class NotFound(ApiError):
    """No such object or resource."""


class Conflict(ApiError):
    """The object changed since it was read, or another field manager owns the field."""


class AlreadyExists(Conflict):
    """An object of this name is there."""


class Gone(ApiError):
    """The resourceVersion or continue token has expired."""


class Invalid(ApiError):
    """The object or the patch was refused."""


class Forbidden(ApiError):
    """These credentials may not do that."""


class Unexpected(ApiError):
    """An answer that nothing here expects."""


class Retry(Exception):
    """Raised by a reconciler: call me again after `after` seconds."""

    def __init__(self, after: float, why: str = "") -> None:
        super().__init__(why or f"again in {after:g} s")
        self.after = after


_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Busy,
    500: Busy,
    502: Busy,
    503: Busy,
    504: Busy,
}


def from_response(code: int, body: bytes, retry_after: str | None, request: str) -> ApiError:
    """The error for a response that is not a success.

    Args:
        code: HTTP status.
        body: a `Status` object where the API server itself answered; anything where a proxy did.
        retry_after: the header of that name, in seconds.
        request: verb and path, for the message.
    """
    message, reason = "", ""
    try:
        status = orjson.loads(body)
        message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    except (orjson.JSONDecodeError, AttributeError):
        message = body[:200].decode(errors="replace")
    kind = _BY_CODE.get(code, Unexpected)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason in ("Expired", "Gone"):
        kind = Gone
    after = float(retry_after) if retry_after and retry_after.isdigit() else None
    return kind(
        f"{message or 'no message'} ({request}: {code} {reason})".rstrip(), code=code, reason=reason, retry_after=after
    )
