"""The one error of an installation that is not the API server's."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 (an answer, with its reason and what to do)
    """This cluster can't be prepared as it is; the message says what is in the way and what to do."""
