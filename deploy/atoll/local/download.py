"""Official release downloads, taken only when their published SHA-256 matches."""

from __future__ import annotations

import hashlib
import http.client
import json
import platform
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

_TIMEOUT_S = 4.0
_KUBERNETES = "https://dl.k8s.io/release"
_ETCD = "etcd-io/etcd"
_KWOK = "kubernetes-sigs/kwok"


class Unavailable(Exception):
    """An expected outcome: no such download. `unreachable`: trying others is a waste of time."""

    def __init__(self, reason: str, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.unreachable = unreachable


def fetch(tool: str, target: Path, versions: dict[str, str]) -> None:
    """Download a program of the pinned version to `target` and verify it.

    Raises:
        Unavailable: not published for this platform, not reachable, or not the published bytes.
    """
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine().lower(), "")
    if sys.platform != "linux" or not machine:
        raise Unavailable(f"none published for {sys.platform}/{platform.machine()}")
    version = versions[tool]
    if tool == "etcd":
        name = f"etcd-{version}-linux-{machine}"
        archive = target.with_suffix(".tar.gz")
        base = f"https://github.com/{_ETCD}/releases/download/{version}"
        sums = _text(f"{base}/SHA256SUMS")
        _download(f"{base}/{name}.tar.gz", archive, _listed_sum(sums, f"{name}.tar.gz"))
        with tarfile.open(archive) as content, target.open("wb") as out:
            member = content.extractfile(f"{name}/etcd")
            if member is None:
                raise Unavailable(f"{name}.tar.gz holds no etcd")
            shutil.copyfileobj(member, out)
        archive.unlink()
    elif tool == "kwok":
        name = f"kwok-linux-{machine}"
        release = _text(f"https://api.github.com/repos/{_KWOK}/releases/tags/{version}")
        digest = _asset_digest(release, name)
        _download(f"https://github.com/{_KWOK}/releases/download/{version}/{name}", target, digest)
    else:
        url = f"{_KUBERNETES}/{version}/bin/linux/{machine}/{tool}"
        _download(url, target, _text(f"{url}.sha256").split()[0])


def _listed_sum(sums: str, name: str) -> str:
    for line in sums.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].lstrip("*") == name:
            return words[0]
    raise Unavailable(f"no SHA-256 published for {name}")


def _asset_digest(release: str, name: str) -> str:
    for asset in json.loads(release).get("assets", ()):
        digest = str(asset.get("digest") or "")
        if asset.get("name") == name and digest.startswith("sha256:"):
            return digest.removeprefix("sha256:")
    raise Unavailable(f"no SHA-256 published for {name}")


def _open(url: str) -> http.client.HTTPResponse:
    try:
        answer = urllib.request.urlopen(url, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"{url}: HTTP {error.code}") from error
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(f"{url}: {reason}", unreachable=True) from error
    assert isinstance(answer, http.client.HTTPResponse)
    return answer


def _text(url: str) -> str:
    with _open(url) as answer:
        return answer.read().decode()


def _download(url: str, target: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    try:
        with _open(url) as answer, target.open("wb") as out:
            while chunk := answer.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{url} broke off: {error}", unreachable=True) from error
    if digest.hexdigest() != sha256.lower():
        target.unlink()
        raise Unavailable(f"{url} does not have its published SHA-256; it was discarded")
