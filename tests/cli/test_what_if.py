"""`what-if`: which files it takes, and that each workload is answered for itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.cli import what_if
from atoll.cli.errors import FAILED, USAGE, CommandError, describe
from atoll.kube import errors
from tests.kube.servers import serving

Json = dict[str, Any]


@pytest.mark.parametrize("text", ["", "[1, 2]", "kind: Job", "a: {"])
def test_a_file_without_manifests_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(CommandError, match=r"job\.yaml"):
        what_if.read(str(file))


def test_a_file_may_hold_several(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("kind: Job\nmetadata: {name: a}\n---\n---\nkind: Job\nmetadata: {name: b}\n")
    assert [each["metadata"]["name"] for each in what_if.read(str(file))] == ["a", "b"]


def test_a_file_that_can_not_be_read_is_told_with_its_name_and_what_to_do(tmp_path: Path) -> None:
    latin, folder = tmp_path / "latin.yaml", tmp_path / "folder"
    latin.write_bytes("kind: Jöb".encode("latin-1"))
    folder.mkdir()
    expected = {
        latin: "is not UTF-8 text (byte 8): save it as UTF-8",
        folder: "is a directory: name its files",
        tmp_path / "none.yaml": "No such file or directory",
    }
    for file, text in expected.items():
        with pytest.raises(CommandError) as raised:
            what_if.read(str(file))
        assert (str(raised.value), raised.value.code) == (f"-f {file}: {text}", USAGE)


def test_files_that_can_be_read_are_whatever_the_others_are(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "none.yaml"
    good.write_text("kind: Job\nmetadata: {name: a}\n")
    manifests, [error] = what_if.read_all([str(bad), str(good)])
    assert ([each["metadata"]["name"] for each in manifests], str(error).split(":")[0]) == (["a"], f"-f {bad}")
    with pytest.raises(CommandError, match=r"none\.yaml"):
        what_if.read_all([str(bad), str(bad)])


# -- against a host --------------------------------------------------------------------------------------------------


class Host:
    """Takes dry runs and what-ifs; refuses jobs named `bad`, has one named `there`."""

    def __init__(self) -> None:
        self.tried: list[Json] = []

    async def __call__(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({"metadata": {}, "items": []})
        body = await request.json()
        if request.path.endswith("/whatifs"):
            return web.json_response({**body, "status": {"starts": True}}, status=201)
        metadata = body["metadata"]
        self.tried.append(metadata)
        if metadata.get("name") == "there":
            return web.json_response({"reason": "AlreadyExists", "message": "taken"}, status=409)
        if metadata.get("name") == "bad":
            return web.json_response({"message": 'The Job "bad" is invalid', "reason": "Invalid"}, status=422)
        return web.json_response({**body, "metadata": {**metadata, "uid": "u"}}, status=201)


def job(name: str, **metadata: str) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **metadata}, "spec": {}}


async def test_the_host_tries_the_name_that_the_user_gave(capsys: pytest.CaptureFixture[str]) -> None:
    host = Host()
    async with serving(host) as api:
        with pytest.raises(errors.Invalid, match='The Job "bad" is invalid'):
            await what_if.ask(api, job("bad"), "n")
        assert (await what_if.ask(api, job("there"), "n"))["status"]["starts"]
    assert host.tried == [
        {"name": "bad", "namespace": "n"},
        {"name": "there", "namespace": "n"},
        {"generateName": "there-", "namespace": "n"},
    ]
    assert capsys.readouterr().err == "Job n/there exists: this is about another one like it\n"


async def test_each_workload_is_answered_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    manifests = [job("a"), job("bad"), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}, job("c")]
    async with serving(Host()) as api:
        answers = await what_if.ask_each(api, manifests, None, "n")
    assert [isinstance(each, Exception) for each in answers] == [False, True, True, False]
    with pytest.raises(SystemExit) as ended:
        what_if.show(manifests, answers, "n", None)
    assert ended.value.code == FAILED
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "4 workloads, each as if it came alone",
        "Job n/a would start now",
        "Job n/c would start now",
    ]
    assert err.splitlines()[0] == 'Job n/bad: Error from server (Invalid): The Job "bad" is invalid'
    assert err.splitlines()[1].startswith("Pod n/p: error: Pod of v1: what-if takes ")


@pytest.mark.parametrize("output", [None, "json"])
async def test_what_carries_no_workload_is_no_error(capsys: pytest.CaptureFixture[str], output: str | None) -> None:
    from atoll.cli.options import DataFormat

    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    wanted = DataFormat.JSON if output else None
    async with serving(Host()) as api:
        for manifests in ([config], [config, job("a")]):
            what_if.show(manifests, await what_if.ask_each(api, manifests, None, "n"), "n", wanted)
            out, err = capsys.readouterr()
            assert "ConfigMap settings carries no workload" in (err if output else out)
            assert ("1 workload, each" in out) == (output is None and len(manifests) > 1)


@pytest.mark.parametrize(
    "manifest",
    [
        {"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "metadata": {"name": "nightly"}},
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "flow"}},
        {"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "b"}, "spec": [{"containers": [{"name": "c"}]}]},
    ],
    ids=lambda each: str(each["kind"]),
)
async def test_what_makes_pods_is_still_refused(manifest: Json) -> None:
    async with serving(Host()) as api:
        [answer] = await what_if.ask_each(api, [manifest], None, "n")
    assert "what-if takes" in str(answer)


async def test_data_names_its_workload(capsys: pytest.CaptureFixture[str]) -> None:
    from atoll.cli.options import DataFormat

    async with serving(Host()) as api:
        answers = await what_if.ask_each(api, [job("a"), job("b", namespace="m")], None, "n")
    what_if.show([job("a"), job("b", namespace="m")], answers, "n", DataFormat.JSON)
    told = orjson.loads(capsys.readouterr().out)
    assert [each["metadata"] for each in told] == [{"namespace": "n", "name": "a"}, {"namespace": "m", "name": "b"}]


async def test_another_namespace_than_the_manifests_is_refused_as_by_kubectl() -> None:
    async with serving(Host()) as api:
        [error] = await what_if.ask_each(api, [job("a", namespace="a")], "b", "b")
        [answer] = await what_if.ask_each(api, [job("a", namespace="b")], "b", "b")
    assert isinstance(answer, dict)
    assert isinstance(error, CommandError)
    assert describe(error)[0] == (
        'error: the namespace from the provided object "a" does not match the namespace "b";'
        " leave -n out, or change one of them"
    )


async def test_a_server_that_does_not_answer_is_told_once() -> None:
    async def drop(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving(drop) as api:
        with pytest.raises(errors.Unreachable):
            await what_if.ask_each(api, [job("a"), job("b")], None, "n")
