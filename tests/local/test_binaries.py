"""Programs are taken from the first place that has a good one, and built only when none has."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from atoll.local import binaries, build, download

OUTPUT = {
    "etcd": "etcd Version: 3.6.8",
    "kube-apiserver": "Kubernetes v1.36.3",
    "kube-controller-manager": "Kubernetes v1.36.3",
    "kube-scheduler": "Kubernetes v1.36.3",
    "kubectl": "Client Version: v1.20.0",
    "kwok": "kwok version v0.8.0",
}


def put(directory: Path, output: Mapping[str, str]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in output.items():
        path = directory / name
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return directory


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"ATOLL_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": ""}


def unreachable(tool: str, target: Path, versions: dict[str, str]) -> None:
    raise download.Unavailable("no route", unreachable=True)


def sources(lines: list[str]) -> dict[str, str]:
    return {line.split(":")[0]: line.rpartition("(")[2].rstrip(")") for line in lines}


def no_go(*_: object) -> None:
    raise build.BuildError("no Go here")


def run(
    env: Mapping[str, str],
    fetch: Callable[[str, Path, dict[str, str]], None] = unreachable,
    install: Callable[..., None] = no_go,
) -> dict[str, str]:
    """Return where each program came from; by default nothing can be downloaded or built."""
    lines: list[str] = []
    binaries.ensure(env, report=lines.append, fetch=fetch, install=install)
    return sources(lines[-len(OUTPUT) :])


def test_assets_come_before_the_cache_and_the_cache_before_path(tmp_path: Path, env: dict[str, str]) -> None:
    put(binaries.cache_directory(env), {key: OUTPUT[key] for key in ("etcd", "kwok", "kubectl")})
    env["KUBEBUILDER_ASSETS"] = str(put(tmp_path / "assets", {"etcd": OUTPUT["etcd"]}))
    env["PATH"] = str(put(tmp_path / "path", OUTPUT))
    assert run(env) == {
        "etcd": "KUBEBUILDER_ASSETS",
        "kwok": "cache",
        "kubectl": "cache",
        "kube-apiserver": "PATH",
        "kube-controller-manager": "PATH",
        "kube-scheduler": "PATH",
    }


@pytest.mark.parametrize(
    ("name", "output", "good"),
    [
        pytest.param("kube-apiserver", "Kubernetes v1.34.0", True, id="1.34 is new enough"),
        pytest.param("kube-apiserver", "Kubernetes v1.33.9", False, id="1.33 is too old"),
        pytest.param("kube-apiserver", "hello", False, id="a program without a version"),
        pytest.param("kubectl", "Client Version: v1.2.3", True, id="any kubectl"),
        pytest.param("etcd", "etcd Version: 3.4.30", False, id="etcd 3.4 is too old"),
    ],
)
def test_a_program_on_path_must_have_a_good_version(
    tmp_path: Path, env: dict[str, str], name: str, output: str, good: bool
) -> None:
    env["PATH"] = str(put(tmp_path / "path", {name: output}))
    tool = next(tool for tool in binaries.TOOLS if tool.name == name)
    assert (binaries.find(tool, env) is not None) is good


def test_only_what_is_missing_is_built_and_then_cached(tmp_path: Path, env: dict[str, str]) -> None:
    asked: list[str] = []

    def install(packages: Mapping[str, str], target: Path, *_: object) -> None:
        asked.extend(packages)
        put(target, {name: OUTPUT[name] for name in packages})

    env["PATH"] = str(put(tmp_path / "path", {"kubectl": OUTPUT["kubectl"]}))
    first = run(env, install=install)
    assert sorted(asked) == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
    assert (first["etcd"], first["kubectl"]) == ("build", "PATH")
    assert run(env)["etcd"] == "cache"
    assert {path.name for path in binaries.cache_directory(env).iterdir()} == {*asked, ".lock"}


def test_a_download_is_preferred_to_a_build(env: dict[str, str]) -> None:
    def fetch(tool: str, target: Path, versions: dict[str, str]) -> None:
        assert versions[tool].startswith("v")
        put(target.parent, {tool: OUTPUT[tool]})

    assert set(run(env, fetch=fetch).values()) == {"download"}


def test_a_download_that_is_not_what_it_was_is_refused(env: dict[str, str]) -> None:
    """The same version, published anew: whoever can do that can publish its digest as well."""
    content = "one"

    def fetch(tool: str, target: Path, versions: dict[str, str]) -> None:
        put(target.parent, {tool: content})

    lines: list[str] = []
    binaries.ensure(env, report=lines.append, fetch=fetch, install=no_go)
    assert any(line.startswith("etcd: trusted from now on: SHA-256 ") for line in lines)
    cache = binaries.cache_directory(env)
    record = cache.parent / "digests.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600

    def again() -> None:
        for name in OUTPUT:
            (cache / name).unlink(missing_ok=True)
        run(env, fetch=fetch)

    again()
    content = "another"
    with pytest.raises(binaries.BinariesError, match=r"SHA-256 .* is not .* of the first download.*digests.json"):
        again()
    assert not (cache / "etcd").exists()
    record.unlink()
    again()


@pytest.mark.parametrize("name", ["GOFLAGS", "GOINSECURE", "GONOSUMCHECK", "GONOSUMDB", "GOSUMDB"])
def test_modules_are_verified_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "off")
    assert name not in build.environment()


def test_one_unreachable_download_is_enough(env: dict[str, str]) -> None:
    asked: list[str] = []

    def fetch(tool: str, target: Path, versions: dict[str, str]) -> None:
        asked.append(tool)
        unreachable(tool, target, versions)

    with pytest.raises(binaries.BinariesError, match="no Go here"):
        run(env, fetch=fetch)
    assert asked == ["etcd"]


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        pytest.param(None, "not on PATH", id="Go is missing"),
        pytest.param("go1.25.4", "is go1.25: install a newer", id="Go is too old"),
        pytest.param("go1.26.0", None, id="Go is new enough"),
    ],
)
def test_the_build_says_which_go_it_needs(tmp_path: Path, version: str | None, complaint: str | None) -> None:
    if version:
        put(tmp_path, {"go": version})
    if complaint is None:
        build.check_go(tmp_path, {"PATH": str(tmp_path)})
        return
    with pytest.raises(build.BuildError, match=complaint):
        build.check_go(tmp_path, {"PATH": str(tmp_path)})


_GO = """#!/bin/bash
[ "$1" = env ] && echo go1.26.0 && exit 0
mkdir -p "$GOCACHE" && touch "$GOCACHE/compiled"
[ -e "$FAILS" ] && echo no luck && exit 1
mkdir -p "$GOBIN" && touch "$GOBIN/kwok"
"""


def test_compiled_packages_go_once_the_build_has_passed_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, fails, store, given = (tmp_path / each for each in ("go", "fails", "store", "given"))
    go.write_text(_GO)
    go.chmod(0o755)
    fails.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("FAILS", str(fails))
    monkeypatch.delenv("GOCACHE", raising=False)

    def install() -> None:
        build.install({"kwok": "x/cmd/kwok"}, tmp_path, binaries.MODULE, "v1.36.3", store, lambda _: None)

    with pytest.raises(build.BuildError, match="no luck"):
        install()
    assert (store / "compiled").exists(), "the next build goes on from there"
    fails.unlink()
    install()
    assert not store.exists()
    monkeypatch.setenv("GOCACHE", str(given))
    install()
    assert (given / "compiled").exists(), "a folder that somebody named is theirs"


def test_two_builders_do_not_work_at_once(tmp_path: Path, env: dict[str, str]) -> None:
    said: list[str] = []
    cache = binaries.cache_directory(env)
    cache.mkdir(parents=True)
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(cache / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "held\n"

        def report(line: str) -> None:
            said.append(line)
            if "waiting for another" in line:
                # The other one finishes its work, then lets go.
                put(cache, OUTPUT)
                assert other.stdin
                other.stdin.close()

        binaries.ensure(env, report=report, fetch=unreachable)
    assert "waiting for another" in said[0]
    assert set(sources(said[-len(OUTPUT) :]).values()) == {"cache"}


def test_the_cache_is_keyed_by_the_pinned_modules(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = binaries.cache_directory(env)
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((binaries.MODULE / name).read_bytes() + b"\n")
    monkeypatch.setattr(binaries, "MODULE", tmp_path)
    assert binaries.cache_directory(env) != before
    assert binaries.cache_directory(env).parent == tmp_path / "cache" / "binaries"


def test_every_program_is_pinned() -> None:
    assert set(binaries.pinned_versions()) == {tool.name for tool in binaries.TOOLS}
