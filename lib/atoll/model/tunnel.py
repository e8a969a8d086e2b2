"""What dispatcher and agents say over the agent's outgoing connection: who wants to read what of whose pods."""

from __future__ import annotations

import msgspec

SUBRESOURCE = "proxy"
"""Of a tunnel: API servers end what is none of a few subresources after a minute."""
CHUNK = 2**15
"""Bytes of output in one message."""


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of containers of a binding's pods, or their Events."""

    namespace: str
    binding: str
    """Its UID."""
    task: str = ""
    """Only pods of this task."""
    index: int = -1
    """Only the pod with this index in its task."""
    container: str = ""
    """Empty: a pod's only one."""
    tail: int = 100
    """Last lines of each."""
    follow: bool = False
    previous: bool = False
    events: bool = False
    """Not the output but the Events of the pods, a JSON object in each line: cluster, and the Event as it is."""
    most: int = 2**20
    """Bytes at most, of all pods together; of one that is followed, no bound."""


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """To an agent; without `wanted`, nobody waits for the answer of this number any more."""

    number: int
    wanted: Wanted | None = None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """From an agent: whole lines, or that it was all."""

    number: int
    text: str = ""
    end: bool = False
    error: str = ""
    """With `end`: why there is no more, or nothing."""


to_ask = msgspec.json.Decoder(Ask).decode
to_answer = msgspec.json.Decoder(Answer).decode
encode = msgspec.json.Encoder().encode
