"""AdmissionReview (admission.k8s.io/v1) in and out."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson

from atoll.admission import jsonpatch
from atoll.admission.problems import Json, Problem, report

API_VERSION: Final = "admission.k8s.io/v1"
AUDIT: Final = "audit-violations"
"""What an audit log says of an object after the webhook's name; as PodSecurity says it after its own."""


class User(msgspec.Struct, frozen=True):
    """Who asks."""

    username: str = ""


class Resource(msgspec.Struct, frozen=True):
    """What resource type it asks about."""

    group: str = ""
    version: str = ""
    resource: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What the API server asks about."""

    uid: str
    resource: Resource = Resource()
    operation: str = ""
    name: str = ""
    namespace: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    user_info: User = User()


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """The envelope."""

    request: Request
    api_version: str = ""
    kind: str = ""


class BadReview(ValueError):
    """The body is no AdmissionReview that this server can answer."""

    def __init__(self, message: str, *, uid: str = "", api_version: str = API_VERSION) -> None:
        """Args:
        message: the problem.
        uid: of the request, where it could be read nevertheless: then it is answered by a refusal.
        api_version: of the refusal.
        """
        super().__init__(message)
        self.uid, self.api_version = uid, api_version


class _Named(msgspec.Struct, frozen=True):
    uid: object = None


class _Envelope(msgspec.Struct, frozen=True):
    """As much of any review as an answer needs."""

    request: _Named | None = None


_decoder = msgspec.json.Decoder(Review)
_envelope = msgspec.json.Decoder(_Envelope)
_HEAD: Final = re.compile(rb'"request"\s{0,9}:\s{0,9}\{\s{0,9}"uid"\s{0,9}:\s{0,9}"([0-9A-Za-z-]{1,100})"')
"""How an API server's review begins, for one whose rest can't be read."""
_HEAD_SIZE: Final = 65536


def decode(body: bytes) -> Request:
    """The request of a review.

    Raises:
        BadReview: not JSON, not an AdmissionReview, or of another version.
    """
    try:
        review = _decoder.decode(body)
    except RecursionError:
        raise BadReview("the object is nested too deeply to be checked; make it flatter", uid=_uid_in(body)) from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadReview(f"the body is no AdmissionReview: {error}"[:_SAID], uid=_uid_in(body)) from error
    uid = review.request.uid
    if review.kind != "AdmissionReview" or not review.api_version.startswith(_GROUP):
        raise BadReview(
            f"got {review.kind or 'an object'} of version {review.api_version or '(none)'}"[:_SAID]
            + f"; send an AdmissionReview of {API_VERSION}",
            uid=uid,
        )
    if review.api_version != API_VERSION:
        raise BadReview(
            f"an AdmissionReview of version {review.api_version} can't be judged"[:_SAID]
            + f"; send {API_VERSION} (admissionReviewVersions of the webhook configuration)",
            uid=uid,
            api_version=review.api_version,
        )
    if not uid:
        raise BadReview("request.uid is empty; it is needed for the answer")
    return review.request


_GROUP: Final = "admission.k8s.io/"
_SAID: Final = 300


def _uid_in(body: bytes) -> str:
    """The UID of a review that can't be read as a whole; empty if there is none."""
    try:
        request = _envelope.decode(body).request
        uid = request.uid if request is not None else None
    except (msgspec.MsgspecError, RecursionError, ValueError):
        found = _HEAD.search(body[:_HEAD_SIZE])
        uid = found[1].decode() if found else None
    return uid if isinstance(uid, str) else ""


def encode(
    uid: str,
    *,
    patch: list[jsonpatch.Operation] | None = None,
    refusal: str = "",
    warnings: Sequence[str] = (),
    audit: str = "",
    code: int = 403,
    api_version: str = API_VERSION,
) -> bytes:
    """The review that answers the request of this UID: allowed unless there is a refusal. `audit`: for audit logs."""
    response: Json = {"uid": uid, "allowed": not refusal}
    if warnings:
        response["warnings"] = list(warnings)
    if audit:
        response["auditAnnotations"] = {AUDIT: audit}
    if refusal:
        reason = "Forbidden" if code == 403 else "BadRequest"
        response["status"] = {"code": code, "reason": reason, "message": refusal}
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return orjson.dumps({"apiVersion": api_version, "kind": "AdmissionReview", "response": response})


def refusal_of(request: Request, kind: str, problems: list[Problem]) -> str:
    """The problems of the request's object as one message; empty when there are none."""
    if not problems:
        return ""
    metadata = (request.object or request.old_object or {}).get("metadata")
    name = request.name or (metadata.get("name") if isinstance(metadata, dict) else "") or "(to be named)"
    return report(f"{kind} {request.namespace}/{name}" if request.namespace else f"{kind} {name}", problems)


def warnings_of(problems: Sequence[Problem]) -> list[str]:
    """Warnings about an accepted object; the API server cuts and drops longer or further ones."""
    texts = [str(problem) for problem in problems]
    shown = [text if len(text) <= _WARNING else f"{text[: _WARNING - 3]}..." for text in texts[:_WARNINGS]]
    return [*shown, f"and {len(texts) - _WARNINGS} more"] if len(texts) > _WARNINGS else shown


_WARNING: Final = 256
_WARNINGS: Final = 15
"""An API server passes 4096 characters on."""
