"""The ports of a fabric as UFM says them over HTTP: one request, tried again while the server may yet answer."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import orjson
import tenacity

PORTS: Final = "/ufmRest/resources/ports"
MOST: Final = 64 << 20
"""Bytes of an answer: a fabric of 100,000 ports has about 40 MB."""
_ATTEMPTS: Final = 4
_LONGEST: Final = 20.0
"""Seconds for one attempt."""
_PAUSE: Final = tenacity.wait_exponential_jitter(multiplier=0.5, max=8, jitter=0.5)
_BUSY: Final = 500
_TOO_MANY: Final = 429


class UfmError(Exception):
    """UFM gave no ports; the message has its answer."""


class _Passing(UfmError):
    """It may answer when it is asked again."""


class Ufm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where UFM is, and who asks."""

    url: str
    """`https://HOST`, without a path."""
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    """Certificates of who may sign for it; those of the system otherwise."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("https://", "http://")):
            raise ValueError(f"url {self.url!r}: write https://HOST")
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and passwordFile go together")
        if self.user and not self.url.startswith("https://"):
            raise ValueError("a password is sent over https:// alone")


async def ports(ufm: Ufm, *, wait: tenacity.wait.wait_base = _PAUSE) -> list[dict[str, Any]]:
    """All ports of the fabric, as `fabric.of_ufm` reads them.

    Args:
        ufm: to ask.
        wait: between two attempts.

    Raises:
        UfmError: it refused, said something else, or did not answer in four attempts of 20 s.
        OSError: a file can't be read.
    """
    trust = ssl.create_default_context(cafile=ufm.ca_file or None)
    headers = {"Accept": "application/json"} | _credentials(ufm)
    address = ufm.url.rstrip("/") + PORTS
    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=wait,
        retry=tenacity.retry_if_exception_type(_Passing),
        reraise=True,
    )
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=_LONGEST)) as session:
        return await retrying(_asked, session, address, trust)


def _credentials(ufm: Ufm) -> dict[str, str]:
    if not ufm.user:
        return {}
    password = Path(ufm.password_file).read_text("utf-8").strip()
    return {"Authorization": aiohttp.encode_basic_auth(ufm.user, password)}


async def _asked(session: aiohttp.ClientSession, address: str, trust: ssl.SSLContext) -> list[dict[str, Any]]:
    try:
        async with session.get(address, ssl=trust, allow_redirects=False) as response:
            if response.status >= _BUSY or response.status == _TOO_MANY:
                raise _Passing(f"{address}: HTTP {response.status}")
            if response.status != 200:
                raise UfmError(f"{address}: HTTP {response.status}; are user, password and URL right?")
            body = b""
            async for chunk in response.content.iter_chunked(1 << 20):
                body += chunk
                if len(body) > MOST:
                    raise UfmError(f"{address}: more than {MOST >> 20} MiB")
    except (aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL) as error:
        raise UfmError(f"{address}: {error}") from error
    except aiohttp.ClientConnectorError as error:
        # Its own text has an object of this process in it.
        raise _Passing(f"{address}: {error.os_error}") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _Passing(f"{address}: {error or 'no answer in time'}") from error
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise UfmError(f"{address}: no JSON: {error}") from error
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UfmError(f"{address}: no list of ports")
    return found
