"""The one error of an installation that is not the API server's."""

from __future__ import annotations


class Refused(Exception):
    """The cluster can't be prepared as it is; the message says what is in the way and what to do."""
