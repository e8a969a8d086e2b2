"""What dispatcher and agents say over the agent's outgoing connection: who wants to read what of whose pods, and what
is said in sessions with one of them.
"""

from __future__ import annotations

import msgspec

SUBRESOURCE = "proxy"
"""Of a tunnel: API servers end all but a few subresources after a minute."""
CHUNK = 2**15
"""Bytes of output in one message."""


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The output of containers of a binding's pods, their Events, or the pods themselves."""

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
    pods: bool = False
    """Not the output but the pods, a JSON object in each line: see `atoll.agent.tunnel.described`."""
    most: int = 2**20
    """Bytes at most, of all pods together; of one that is followed, no bound."""


class Session(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command in a container of one pod, or a connection to a port of it."""

    namespace: str
    binding: str
    """Its UID."""
    task: str = ""
    index: int = -1
    container: str = ""
    """Empty: a pod's first one."""
    command: list[str] = []
    stdin: bool = False
    """Whether the command reads what comes."""
    port: int = 0
    """Not 0: instead of a command."""


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """To an agent; with nothing but its number, nobody waits for that answer any more."""

    number: int
    wanted: Wanted | None = None
    session: Session | None = None
    """Begins one. An agent of an earlier version takes it for the end of an answer that it does not give."""
    data: bytes = b""
    """For a session that has begun."""
    end: bool = False
    """Nothing more comes for a session."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """From an agent: whole lines, or that it was all."""

    number: int
    text: str = ""
    end: bool = False
    error: str = ""
    """With `end`: why there is no more, or nothing."""
    data: bytes = b""
    """Of a session."""
    stream: int = 1
    """Of that: 1 for output, 2 for errors."""
    code: int = 0
    """With `end` of a session: of the command."""
    began: bool = False
    """The session is there; said once."""


to_ask = msgspec.json.Decoder(Ask).decode
to_answer = msgspec.json.Decoder(Answer).decode
encode = msgspec.json.Encoder().encode
