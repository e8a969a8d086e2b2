"""Every error that talking to an API server can raise.

    ApiError                    the server, or the way to it, said no
    ├── Unreachable             no answer: refused, reset, timed out (try again)
    ├── Busy                    429, 500, 502, 503, 504: the server asks for patience (try again, after `retry_after`)
    ├── NotFound                404
    ├── Conflict                409: somebody else was faster
    │   └── AlreadyExists       409 on create
    ├── Gone                    410: the resourceVersion is too old, list again
    ├── Invalid                 400 or 422: the object was refused, or a JSON patch test failed
    ├── Forbidden               403
    │   └── Unauthorized        401: the server does not know these credentials (any more)
    └── Unexpected              any other code

A reconciler raises `Retry(after)` to be called again; every other exception is a failure, logged and tried again with
backoff.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import orjson

_LONGEST_MESSAGE = 4000


class ApiError(Exception):
    """The server, or the way to it, refused."""

    def __init__(
        self, message: str, *, code: int = 0, reason: str = "", retry_after: float | None = None, said: str = ""
    ) -> None:
        """The error.

        Args:
            message: the request and the answer.
            code: HTTP status.
            reason: the server's word for it.
            retry_after: seconds that it asks to wait.
            said: the server's message alone; where there is none, `message`.
        """
        super().__init__(message)
        self.message = message
        self.said = said or message
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


class Unauthorized(Forbidden):
    """The server does not know these credentials."""

    renewed = False
    """Whether there are others now."""


class Unexpected(ApiError):
    """An answer that nothing here expects."""


class Retry(Exception):
    """Raised by a reconciler: call me again after `after` seconds."""

    def __init__(self, after: float, why: str = "") -> None:
        super().__init__(why or f"again in {after:g} s")
        self.after = after


_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
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
        retry_after: the header of that name, in seconds or as a date.
        request: verb and path, for the message.
    """
    message, reason, patience = "", "", None
    try:
        status = orjson.loads(body)
        message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
        patience = (status.get("details") or {}).get("retryAfterSeconds")
    except (orjson.JSONDecodeError, AttributeError):
        message = message or body[:200].decode(errors="replace")
    kind = _BY_CODE.get(code, Unexpected)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason in ("Expired", "Gone"):
        kind = Gone
    after = _seconds(retry_after)
    if after is None and isinstance(patience, int) and patience > 0:
        after = float(patience)
    return kind(
        f"{message[:_LONGEST_MESSAGE] or 'no message'} ({request}: {code} {reason})".rstrip(),
        code=code,
        reason=reason,
        retry_after=after,
        said=message[:_LONGEST_MESSAGE],
    )


def _seconds(retry_after: str | None) -> float | None:
    """Seconds from now that a Retry-After header asks for (RFC 9110, 10.2.3); None for none or nonsense."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
