"""HTTP/1.1 as it goes over a connection: where a message ends and which few fields a proxy must know.

The proxy passes bytes on as they are; a full HTTP stack on both sides would cost several times as much per request,
and would mend what is to be broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class Head:
    """The first line and the fields of a request or an answer."""

    raw: bytes
    """As received, the empty line included."""
    lower: bytes

    def field(self, name: bytes) -> bytes | None:
        """The value of a field by its lower-case name."""
        start = self.lower.find(b"\r\n" + name + b":")
        if start < 0:
            return None
        start += len(name) + 3
        return self.raw[start : self.raw.index(b"\r\n", start)].strip()

    @property
    def first(self) -> tuple[str, str, str]:
        """Method, target, version; or version, status, reason."""
        one, two, *rest = self.raw[: self.raw.index(b"\r\n")].decode("latin-1").split(" ", 2)
        return one, two, rest[0] if rest else ""

    @property
    def chunked(self) -> bool:
        return self.field(b"transfer-encoding") == b"chunked"

    def with_suffix(self, name: bytes, text: bytes) -> Head:
        """The same with `text` behind the value of a field; unchanged where the field is missing."""
        start = self.lower.find(b"\r\n" + name + b":")
        if start < 0:
            return self
        end = self.raw.index(b"\r\n", start + 2)
        raw = self.raw[:end] + text + self.raw[end:]
        return Head(raw, raw.lower())


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head; None where the other side has closed instead.

    Raises:
        IncompleteReadError: it closed in the middle of one.
    """
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    return Head(raw, raw.lower())


async def body(reader: asyncio.StreamReader, head: Head, *, answer_to: str | None = None) -> AsyncIterator[bytes]:
    """What follows a head, piece by piece as it comes, without the framing of chunks.

    Args:
        reader: where the head was read from.
        head: says how the body ends.
        answer_to: the request's method where this is an answer.

    Raises:
        IncompleteReadError: the other side closed too early.
    """
    if answer_to == "HEAD" or (answer_to and head.first[1] in ("204", "304")):
        return
    if head.chunked:
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            piece = await reader.readexactly(size + 2)
            if not size:
                return
            yield piece[:-2]
    length = head.field(b"content-length")
    if length is None:
        # Only an answer may end with its connection.
        while answer_to and (piece := await reader.read(_PIECE)):
            yield piece
        return
    left = int(length)
    while left:
        piece = await reader.read(min(left, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(piece)
        yield piece


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; the empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def framed(data: bytes, head: Head) -> bytes:
    """A piece of a body in the framing that its head announced."""
    return chunk(data) if head.chunked else data


def answer(status: str, content: bytes, **fields: str) -> bytes:
    """A whole answer of our own, such as `answer("429 Too Many Requests", body, retry_after="1")`."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
