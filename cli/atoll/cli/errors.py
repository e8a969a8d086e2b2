"""Errors as a person at a terminal sees them: one line on stderr, and an exit code."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from atoll.kube.errors import ApiError

FAILED = 1
USAGE = 2

_REQUEST = re.compile(r"\s* \([A-Z]+ /\S*: \d+ \w*\)$")
_SHOW = "kubectl config view --minify"
_OTHERS = "with --kubeconfig or --context"
_NO_RIGHT = " is forbidden: User "
"""In the words of the API server's authorizer; admission refuses with 403 as well, whoever asks."""


_OWN_ERRORS = ("atoll.local", "atoll.install.refusal")
"""Modules whose errors are for people; they are not imported for that, as it takes as long as a command."""


class CommandError(Exception):
    """A command fails; the message says why and what to do."""

    def __init__(self, message: str, code: int = FAILED, *, option: str = "") -> None:
        """`option`: of the command line that would help; programs that use the client see the message alone."""
        super().__init__(message)
        self.code, self.option = code, option


def no_dispatcher(what: str, error: ApiError) -> CommandError:
    """A question that a dispatcher answers had no answer: `what`, the host's words, and where to look."""
    return CommandError(
        f"{what}: {error.message}; is an atoll-dispatcher leading? (kubectl get apiservice v1alpha1.query.atoll.sh)"
    )


def fail(error: Exception) -> NoReturn:
    """Print an error that is the user's to know and exit; raise any other again."""
    text, code = describe(error)
    if not text:
        raise error
    print(text, file=sys.stderr)
    raise SystemExit(code)


def describe(error: Exception) -> tuple[str, int]:
    """The line and the exit code; an empty line for an error that is a defect of ours."""
    if isinstance(error, CommandError):
        return f"error: {error}{f' ({error.option})' if error.option else ''}", error.code
    from atoll.kube.access import BadKubeconfig
    from atoll.kube.errors import ApiError, Unauthorized, Unreachable

    if isinstance(error, Unreachable):
        todo = f"check server and certificate-authority of the kubeconfig's context ({_SHOW}), or choose another"
        return f"Unable to connect to the server: {error.message}; {todo} {_OTHERS}", FAILED
    if isinstance(error, Unauthorized):
        why = "it does not know the credentials of the kubeconfig's user, or they have expired"
        todo = f"renew them, or choose others {_OTHERS}"
        return f"error: You must be logged in to the server (Unauthorized): {why}; {todo}", FAILED
    if isinstance(error, ApiError):
        message = _REQUEST.sub("", error.message)
        if no_right(error):
            message += f"; ask an administrator of the host for that right, or choose another user {_OTHERS}"
        return f"Error from server ({error.reason or type(error).__name__}): {message}", FAILED
    if isinstance(error, BadKubeconfig) or type(error).__module__.startswith(_OWN_ERRORS):
        return f"error: {error}", FAILED
    return "", FAILED


def no_right(error: Exception) -> bool:
    """Whether the user has no right to do it; admission refuses in other words."""
    return _NO_RIGHT in str(error)
