"""The command line itself: options anywhere, usage errors, messages and exit codes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from atoll.cli import connection, errors, installing, lookup, options, queue_spec
from atoll.cli.app import tree
from atoll.cli.errors import CommandError
from atoll.cli.options import Settings, default_namespace
from atoll.install import Refused
from atoll.kube.errors import AlreadyExists, NotFound, Unreachable, from_response
from atoll.kube.transport import ApiServer

runner = CliRunner()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param(["job", "list", "-n", "a"], ["-n", "a", "job", "list"], id="a namespace after the command"),
        pytest.param(["job", "list", "-na"], ["-na", "job", "list"], id="a namespace without a space"),
        pytest.param(
            ["job", "list", "-A", "-o", "wide"], ["-A", "job", "list", "-o", "wide"], id="a flag takes no value"
        ),
        pytest.param(["x", "--namespace=a"], ["--namespace=a", "x"], id="a value behind an equals sign"),
        pytest.param(
            ["x", "--nodes", "2", "--name", "n"], ["x", "--nodes", "2", "--name", "n"], id="other options stay"
        ),
        pytest.param(["x", "--", "-n", "a"], ["x", "--", "-n", "a"], id="nothing moves from behind two dashes"),
        pytest.param(["x", "-n"], ["-n", "x"], id="a missing value is left to the parser"),
    ],
)
def test_global_options_may_stand_anywhere(args: list[str], expected: list[str]) -> None:
    front, rest = options.hoisted(args)
    assert [*front, *rest] == expected


@pytest.mark.parametrize(
    "args",
    [
        [], ["local"], ["local", "up"], ["local", "down"], ["local", "status"], ["init"], ["join"], ["queue"],
        ["queue", "create"], ["queue", "list"], ["queue", "get"], ["queue", "close"], ["queue", "open"],
        ["queue", "delete"], ["job"], ["job", "list"], ["job", "get"], ["explain"], ["version"],
    ],
    ids=lambda args: " ".join(args) or "atollctl",
)  # fmt: skip
def test_every_command_has_help_and_every_leaf_an_example(args: list[str]) -> None:
    result = runner.invoke(tree(), [*args, "--help"])
    assert result.exit_code == 0, result.output
    if args not in (["local"], ["queue"], ["job"]):
        assert "Example" in result.output


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["queue", "create"], id="a queue without a name"),
        pytest.param(["queue", "create", "q", "--weight", "0"], id="a weight of zero"),
        pytest.param(["queue", "list", "-o", "xml"], id="an unknown format"),
        pytest.param(["join", "east"], id="a member without a kubeconfig"),
        pytest.param(["local", "up", "--members", "0"], id="no members"),
        pytest.param(["nonsense"], id="an unknown command"),
    ],
)
def test_wrong_usage_exits_with_2(args: list[str]) -> None:
    result = runner.invoke(tree(), args)
    refused = result.exception
    assert (refused.code if isinstance(refused, errors.CommandError) else result.exit_code) == errors.USAGE


def test_a_config_file_and_counts_exclude_each_other() -> None:
    result = runner.invoke(tree(), ["local", "up", "--config", "f.yaml", "--members", "2"])
    assert isinstance(result.exception, errors.CommandError)
    assert errors.describe(result.exception) == (
        "error: give either --config or --members, --nodes and --real-nodes",
        errors.USAGE,
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        pytest.param(
            from_response(404, b'{"message":"jobs \\"x\\" not found","reason":"NotFound"}', None, "GET /apis/x"),
            'Error from server (NotFound): jobs "x" not found',
            id="the server's answer without the request",
        ),
        pytest.param(
            AlreadyExists("taken", reason="AlreadyExists"), "Error from server (AlreadyExists): taken", id="taken"
        ),
        pytest.param(NotFound("gone"), "Error from server (NotFound): gone", id="no reason given"),
        pytest.param(
            Unreachable("GET https://h:6443/apis/x: Connection refused"),
            "Unable to connect to the server: GET https://h:6443/apis/x: Connection refused; check server and"
            " certificate-authority of the kubeconfig's context (kubectl config view --minify), or choose another with"
            " --kubeconfig or --context",
            id="no answer",
        ),
        pytest.param(
            from_response(401, b'{"message":"Unauthorized","reason":"Unauthorized"}', None, "GET /apis/x"),
            "error: You must be logged in to the server (Unauthorized): it does not know the credentials of the"
            " kubeconfig's user, or they have expired; renew them, or choose others with --kubeconfig or --context",
            id="credentials that the server does not know",
        ),
        pytest.param(
            from_response(403, b'{"message":"queues is forbidden: User \\"u\\" cannot list"}', None, "GET /"),
            'Error from server (Forbidden): queues is forbidden: User "u" cannot list; ask an administrator of the host'
            " for that right, or choose another user with --kubeconfig or --context",
            id="credentials that may not do it",
        ),
        pytest.param(
            from_response(403, b'{"message":"admission webhook denied the request: no"}', None, "POST /apis/x"),
            "Error from server (Forbidden): admission webhook denied the request: no",
            id="what admission refuses to everybody",
        ),
        pytest.param(
            from_response(400, b"Client sent an HTTP request to an HTTPS server.\n", None, "GET /apis/x"),
            "Error from server (Invalid): Client sent an HTTP request to an HTTPS server.",
            id="an answer that ends with a line",
        ),
        pytest.param(Refused("it runs Kueue"), "error: it runs Kueue", id="an installation refused"),
    ],
)
def test_errors_are_one_line(error: Exception, line: str) -> None:
    assert errors.describe(error) == (line, errors.FAILED)


def test_a_defect_of_ours_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        errors.fail(KeyError("x"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("cpu=64,nvidia.com/gpu=16", {"cpu": "64", "nvidia.com/gpu": "16"}, id="two resources"),
        pytest.param(" cpu = 500m , ", {"cpu": "500m"}, id="spaces and a trailing comma"),
        pytest.param(None, {}, id="nothing"),
    ],
)
def test_resources(text: str | None, expected: dict[str, str]) -> None:
    assert queue_spec.resources(text, "--capability") == expected


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=4", "cpu=four", "cpu=-1", "cpu=1,cpu=2"])
def test_resources_that_are_none_are_usage_errors(text: str) -> None:
    with pytest.raises(errors.CommandError, match="--capability") as caught:
        queue_spec.resources(text, "--capability")
    assert caught.value.code == errors.USAGE


def test_a_queue_says_only_what_was_given() -> None:
    made = queue_spec.queue_object("q", capability="cpu=1", deserved=None, weight=1, priority=0, parent=None)
    assert made["spec"] == {"weight": 1, "capability": {"cpu": "1"}, "priority": 0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("train", ("vcjob", "train"), id="a name alone is a Volcano Job"),
        pytest.param("Job.batch/train", ("job.batch", "train"), id="a kind with its group"),
    ],
)
def test_workload_names(text: str, expected: tuple[str, str]) -> None:
    assert lookup.parse(text) == expected


@pytest.mark.parametrize("text", ["/train", "vcjob/", "a/b/c", ""])
def test_workload_names_that_are_none(text: str) -> None:
    with pytest.raises(errors.CommandError, match="KIND/NAME"):
        lookup.parse(text)


def test_where_the_webhook_is() -> None:
    assert installing.client_config(None, None) is None
    assert installing.client_config("https://h:9443/", None) == {"url": "https://h:9443"}
    assert installing.client_config(None, "ns/hook:8443") == {
        "service": {"namespace": "ns", "name": "hook", "port": 8443}
    }
    for url, service in (("http://h", None), ("https://h", "ns/hook"), (None, "hook"), (None, "ns/hook:https")):
        with pytest.raises(errors.CommandError, match="--webhook"):
            installing.client_config(url, service)


def test_labels_are_pairs() -> None:
    assert installing.key_values(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(errors.CommandError, match="key=value"):
        installing.key_values(["a"])


def test_the_namespace_comes_from_the_context(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "current-context: a\ncontexts: [{name: a, context: {namespace: team}}, {name: b, context: {cluster: c}}]\n"
    )
    assert default_namespace(str(file), None) == "team"
    assert default_namespace(str(file), "b") == "default"
    assert default_namespace(str(tmp_path / "missing"), None) == "default"


def test_help_imports_nothing_slow() -> None:
    """Time depends on the machine; what is imported does not."""
    slow = ("kubernetes", "aiohttp", "pydantic", "kopf", "numpy", "msgspec", "yaml")
    code = (
        "import sys\nfrom atoll.cli.app import tree\n"
        "try: tree()(['--help'])\nexcept SystemExit: pass\n"
        f"print('SLOW', [name for name in {slow!r} if name in sys.modules])"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.splitlines()[-1] == "SLOW []", f"after {time.monotonic() - began:.2f} s"


def test_the_plugin_is_called_kubectl_atoll(tmp_path: Path) -> None:
    program = tmp_path / "kubectl-atoll"
    program.write_text("from atoll.cli.app import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, program, "queue", "--help"], capture_output=True, text=True, check=True, env=_environment()
    )
    assert done.stdout.startswith("Usage: kubectl atoll queue")


def test_no_kubeconfig_is_said_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "atoll.cli", "queue", "list", "--kubeconfig", str(tmp_path / "none")],
        capture_output=True, text=True, check=False, env=_environment(),
    )  # fmt: skip
    assert done.returncode == errors.FAILED
    assert done.stderr.count("\n") == 1
    assert "no such file" in done.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_objects_of_users_are_not_deleted_without_a_confirmation() -> None:
    error = runner.invoke(tree(), ["uninstall", "--crds"]).exception
    assert isinstance(error, errors.CommandError)
    assert (error.code, "confirm with --yes" in str(error)) == (errors.USAGE, True)


def test_a_kubeconfig_of_the_environment_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(CommandError, match=r"^KUBECONFIG names /nonexistent: no such file"):
        connection.call(Settings(), _nothing)


async def _nothing(_: ApiServer) -> None:
    return None


def test_a_server_that_does_not_answer_is_told_of_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its port is taken, and nobody accepts."""
    monkeypatch.setattr(connection, "_SILENCE", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        cluster = {"clusters": [{"name": "c", "cluster": {"server": url}}]}
        context = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump({"users": [{"name": "u", "user": {}}], **cluster, **context}))
        with pytest.raises(Unreachable):
            connection.call(Settings(str(file)), lambda host: host.request("GET", "/version", deadline=0.2))
    assert f"{url} does not answer; it is tried for some seconds more" in capsys.readouterr().err
