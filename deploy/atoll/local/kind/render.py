"""A federation as kind's configurations and two scripts, which start it and take it down. No I/O.

The scripts are what a person would type: `kind create cluster`, `atollctl init`, `atollctl join`, Atoll's processes,
which run on the machine itself. The host's API server reaches webhook and dispatcher through the gateway of Docker's
network.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from atoll.local.layout import FederationConfig, Kubernetes, LayoutError, Member, hypernode_objects

Json = dict[str, Any]

KIND_NODES = 2
"""Worker nodes of each member unless it is said."""
UP, DOWN, PIDS = "up.sh", "down.sh", "pids"
_API = "kind.x-k8s.io/v1alpha4"
_WORKERS = "!node-role.kubernetes.io/control-plane"
"""Nodes that are Atoll's alone where Atoll places: not the one that has kind's own pods."""
_PROCESSES = ("webhook", "control", "dispatcher")
_PORTS_BESIDE = 2
"""Of the webhook, and of the query API."""


class NotOnKind(LayoutError):
    """The configuration asks for what kind's clusters don't have; the message lists it."""


@dataclass(frozen=True)
class Machine:
    """Where the federation is to run."""

    folder: str
    """Absolute path of the folder in which the files will be."""
    python: str
    """Interpreter that has Atoll."""
    ports: Sequence[int]
    """Free ones, `ports_needed` of them at least."""
    archives: Sequence[str] = ()
    """Archives of images that every member gets."""


def ports_needed(config: FederationConfig) -> int:
    """How many ports the processes of a federation listen on."""
    return _PORTS_BESIDE + len(_PROCESSES) + len(config.members)


def cluster_name(federation: str, cluster: str) -> str:
    """Kind's name for a cluster of a federation; it names the containers as well."""
    return f"atoll-{federation}-{cluster}"


def node_names(federation: str, member: Member) -> list[str]:
    """Kind's names for a member's nodes, in order."""
    first = f"{cluster_name(federation, member.name)}-worker"
    return [first if index == 0 else f"{first}{index + 1}" for index in range(member.real_nodes)]


def render(name: str, config: FederationConfig, machine: Machine) -> dict[str, str]:
    """File name -> content: a configuration for each cluster, HyperNodes, and the two scripts.

    Raises:
        NotOnKind: the configuration asks for what kind's clusters don't have.
    """
    if wrong := _not_on_kind(config):
        raise NotOnKind("provider kind can't do that:\n" + "\n".join(f"  {each}" for each in wrong))
    files = {"host.yaml": _dump(_cluster(cluster_name(name, "host"), 0, config.host))}
    for member in config.members:
        files[f"{member.name}.yaml"] = _dump(
            _cluster(cluster_name(name, member.name), member.real_nodes, member.kubernetes)
        )
        if domains := hypernodes(name, member):
            files[f"{member.name}-hypernodes.yaml"] = "---\n".join(map(_dump, domains))
    files[UP] = _up(name, config, machine, files)
    files[DOWN] = _down(name, config, machine)
    return files


def hypernodes(federation: str, member: Member) -> list[Json]:
    """HyperNodes of a member, with kind's names for its nodes."""
    names = dict(zip(member.real_node_names(), node_names(federation, member), strict=True))

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(each) for key, each in value.items()}
        if isinstance(value, list):
            return [renamed(each) for each in value]
        return names.get(value, value) if isinstance(value, str) else value

    return [{**each, "spec": renamed(each["spec"])} for each in hypernode_objects(member)]


def _not_on_kind(config: FederationConfig) -> list[str]:
    found = []
    if config.raised_limits:
        found.append("raised_limits: kind's API servers keep Kubernetes' limits")
    if config.address != "127.0.0.1":
        found.append(f"address {config.address}: kind's API servers listen on 127.0.0.1 here")
    clusters: Mapping[str, Kubernetes] = {"host": config.host} | {each.name: each.kubernetes for each in config.members}
    for cluster, kubernetes in clusters.items():
        if kubernetes.version or kubernetes.flags:
            found.append(f"{cluster}: kubernetes.version and flags: edit image of a node in its file instead")
    for member in config.members:
        if sum(group.count for group in member.nodes):
            found.append(f"{member.name}: nodes: simulated ones are of provider processes; use real_nodes")
        if not member.real_nodes:
            found.append(f"{member.name}: real_nodes: it needs one at least")
        if not member.scheduler:
            found.append(f"{member.name}: scheduler: kube-scheduler always runs in kind's clusters")
        if member.strict_kubelets or member.node_lease_seconds is not None:
            found.append(f"{member.name}: strict_kubelets and node_lease_seconds are of simulated nodes")
    return found


def _cluster(name: str, workers: int, kubernetes: Kubernetes) -> Json:
    nodes: list[Json] = [{"role": "control-plane"}]
    nodes += [{"role": "worker", "labels": {"atoll.sh/node": "real"}} for _ in range(workers)]
    gates = {"featureGates": kubernetes.feature_gates} if kubernetes.feature_gates else {}
    networking = {"ipFamily": "ipv4", "apiServerAddress": "127.0.0.1"}
    return {"kind": "Cluster", "apiVersion": _API, "name": name, **gates, "networking": networking, "nodes": nodes}


def _up(name: str, config: FederationConfig, machine: Machine, files: Mapping[str, str]) -> str:
    webhook, query, *health = machine.ports
    atollctl = [machine.python, "-m", "atoll.cli"]
    lines = [
        *_head(machine, f"Starts federation {name} on kind's clusters; it can be repeated after a failure."),
        "start() {",
        "  local process=$1; shift; mkdir -p logs",
        '  setsid nohup "$@" >>"logs/$process.log" 2>&1 </dev/null &',
        f'  echo "$! $process" >>{PIDS}',
        "}",
        "cluster() {",
        '  kind get clusters 2>/dev/null | grep -qx "$1" && return',
        '  kind create cluster --config "$2.yaml" --kubeconfig "$2.kubeconfig" --wait 180s',
        "}",
    ]
    members = [member.name for member in config.members]
    lines += [_line("cluster", cluster_name(name, each), each) for each in ("host", *members)]
    lines += [
        _line("kind", "load", "image-archive", archive, "--name", cluster_name(name, each))
        for each in members
        for archive in machine.archives
    ]
    lines += [
        "# Where containers reach this machine.",
        "gateway=$(docker network inspect kind --format '{{range .IPAM.Config}}{{.Gateway}}{{\"\\n\"}}{{end}}'"
        " | grep -m1 -E '^[0-9]+(\\.[0-9]+){3}$')",
        _line(*atollctl, "init", "--kubeconfig=host.kubeconfig", "--out=credentials", "--enable-namespace=default")
        + f' --webhook-url="https://$gateway:{webhook}" --query-outside="$gateway"',
    ]
    lines += [_line(*atollctl, *_join(member)) for member in config.members]
    lines += [
        _line("kubectl", f"--kubeconfig={member.name}.kubeconfig", "apply", "-f", f"{member.name}-hypernodes.yaml")
        for member in config.members
        if f"{member.name}-hypernodes.yaml" in files
    ]
    lines.append("bash down.sh processes")
    flags = {
        "webhook": (f"--port={webhook}",),
        "control": (),
        "dispatcher": (f"--query-port={query}",),
    }
    for process, port in zip(_PROCESSES, health, strict=False):
        own = [f"--kubeconfig=$PWD/credentials/atoll-{process}.kubeconfig", *flags[process], f"--health-port={port}"]
        lines.append(_start(f"atoll-{process}", machine.python, f"atoll.{process}", own))
    for member, port in zip(config.members, health[len(_PROCESSES) :], strict=False):
        file = f"$PWD/credentials/atoll-agent-{member.name}"
        own = [f"--cluster={member.name}", f"--kubeconfig={file}.host.kubeconfig"]
        own.append("--member-secret" if member.push else f"--member-kubeconfig={file}.member.kubeconfig")
        own.append(f"--health-port={port}")
        lines.append(_start(f"atoll-agent-{member.name}", machine.python, "atoll.agent", own))
    wait = ["wait", "--for=condition=Ready", "clusters.cluster.karmada.io", "--all", "--timeout=180s"]
    lines.append(_line("kubectl", "--kubeconfig=host.kubeconfig", *wait))
    return "\n".join(lines) + "\n"


def _join(member: Member) -> list[str]:
    words = ["join", member.name, "--kubeconfig=host.kubeconfig", f"--member-kubeconfig={member.name}.kubeconfig"]
    words += ["--out=credentials", f"--placer={member.placer}", "--accept-namespace=default"]
    words += [f"--nodes={_WORKERS}"] if member.placer == "atoll" else []
    words += [f"--member-queue={member.member_queue}"] if member.member_queue else []
    words += ["--allow-exec"] if member.allow_exec else []
    words += ["--beside-host"] if member.push else []
    return words + [f"--label={key}={value}" for key, value in member.labels.items()]


def _down(name: str, config: FederationConfig, machine: Machine) -> str:
    lines = [
        *_head(machine, f"Takes federation {name} down; with the word `processes` only Atoll's processes."),
        f"if [ -e {PIDS} ]; then",
        "  while read -r pid process; do",
        "    # A process id may have been given to another process since.",
        '    if tr "\\0" " " <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$PWD/credentials/"; then kill "$pid"; fi',
        f"  done <{PIDS}",
        f"  rm {PIDS}",
        "fi",
        'if [ "${1:-}" = processes ]; then exit 0; fi',
    ]
    clusters = [*(member.name for member in config.members), "host"]
    lines += [_line("kind", "delete", "cluster", "--name", cluster_name(name, each)) for each in clusters]
    return "\n".join(lines) + "\n"


def _head(machine: Machine, what: str) -> list[str]:
    return ["#!/usr/bin/env bash", f"# {what}", "set -euo pipefail", _line("cd", machine.folder)]


def _start(name: str, python: str, module: str, flags: Sequence[str]) -> str:
    # Double quotes: the shell fills in the folder and the gateway.
    return " ".join([_line("start", name, python, "-m", module), *(f'"{each}"' for each in flags)])


def _line(*words: str) -> str:
    return " ".join(map(shlex.quote, words))


def _dump(obj: Json) -> str:
    return yaml.safe_dump(obj, sort_keys=False)
