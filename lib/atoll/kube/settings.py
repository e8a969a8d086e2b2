"""Settings of a process: one documented tree, from a file, the environment and flags.

`atoll.model.settings` says what a section is; `load` reads the tree of a process. What is nearest wins: a flag, then an
environment variable, then the file, then the default. A name that nobody knows is refused, and the nearest is named.

`atollctl` uses the classes that are set up with these sections too, so they are msgspec's, which it has loaded anyway.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec

from atoll.model.settings import Section, number, ratio, seconds, words

Json = dict[str, Any]
S = TypeVar("S", bound="Section")

_EDGE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class BadSettings(Exception):
    """A setting is unknown or has a value that it can't have; the message says where it comes from."""


@dataclass(frozen=True)
class Leaf:
    """One setting."""

    path: tuple[str, ...]
    kind: Any
    """Its type, with its bounds."""
    default: Any
    meta: msgspec.Meta

    @property
    def key(self) -> str:
        """As files nest it, with dots."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """Its own flag; empty where it has none."""
        return str((self.meta.extra or {}).get("flag", ""))

    def variable(self, process: str) -> str:
        """Its environment variable.

        Two underscores part the names: what Kubernetes tells of a Service `atoll-webhook` begins with ATOLL_WEBHOOK_.
        """
        return "__".join([f"ATOLL_{process.upper()}", *(_EDGE.sub("_", name).upper() for name in self.path)])

    def read(self, value: Any, source: str, *, text: bool) -> Any:
        """The value, checked.

        Args:
            value: as it was given.
            source: of it, for the error.
            text: it is text, whatever the setting is.

        Raises:
            BadSettings: it can't have this value.
        """
        try:
            found = msgspec.convert(value, self.kind, strict=not text)
        except msgspec.ValidationError as error:
            if choices := get_args(get_args(self.kind)[0]):
                raise BadSettings(f"{source}: {self.key} can't be {value!r}: choose {', '.join(choices)}") from None
            raise BadSettings(f"{source}: {self.key} can't be {value!r}: {str(error).replace('`', '')}") from None
        if isinstance(found, float) and not math.isfinite(found):
            raise BadSettings(f"{source}: {self.key} can't be {value!r}")
        return found


def leaves(model: type[Section], above: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """All settings of a tree, in its order."""
    for field in msgspec.structs.fields(model):
        path = (*above, field.encode_name)
        kind = field.type
        if isinstance(kind, type) and issubclass(kind, Section):
            for leaf in leaves(kind, path):
                default = field.default
                for name in leaf.path[len(path) :]:
                    default = getattr(default, _attribute(type(default), name))
                yield Leaf(leaf.path, leaf.kind, default, leaf.meta)
            continue
        # `Annotated[...] | None` has its bounds in the first of the two.
        bounded = kind if hasattr(kind, "__metadata__") else get_args(kind)[0]
        meta = next(each for each in bounded.__metadata__ if isinstance(each, msgspec.Meta))
        yield Leaf(path, kind, field.default, meta)


def _attribute(model: type[Section], name: str) -> str:
    return next(field.name for field in msgspec.structs.fields(model) if field.encode_name == name)


def load(model: type[S], process: str, description: str, argv: Sequence[str] | None = None, *, epilog: str = "") -> S:
    """The settings of a process, from its command line and what that names; ends it where they are wrong.

    Args:
        model: of its tree.
        process: its name, such as `agent`.
        description: of the process, for --help.
        argv: its arguments; None for those of this process.
        epilog: of --help.
    """
    known = {leaf.key: leaf for leaf in leaves(model)}
    parser = _parser(known, process, description, epilog)
    options = parser.parse_args(argv)
    try:
        given = _given(known, process, options, os.environ)
        settings = made(model, {key: value for key, (value, _) in given.items()})
        if options.print_config:
            print(text(model, settings, {key: source for key, (_, source) in given.items()}), end="")
            sys.exit(0)
        for key, leaf in known.items():
            if (leaf.meta.extra or {}).get("needed") and not given.get(key, ("", ""))[0]:
                raise BadSettings(f"{key} is needed: give {leaf.flag}, or set {leaf.variable(process)}")
    except BadSettings as error:
        parser.exit(2, f"atoll-{process}: {error}\n")
    return settings


def _parser(known: Mapping[str, Leaf], process: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"atoll-{process}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"{epilog}\nAll settings, with units, bounds and reasons: docs/settings.md.".lstrip(),
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML with settings; flags and environment win")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, such as drain=10; may be repeated"
    )
    parser.add_argument("--print-config", action="store_true", help="print all settings as such a file, and end")
    for leaf in known.values():
        if not leaf.flag:
            continue
        unsaid = leaf.default in (None, "") or isinstance(leaf.default, bool)
        default = "" if unsaid else f" (default: {shown(leaf.default)})"
        about = f"{leaf.meta.description}{default}".replace("%", "%%")
        if isinstance(leaf.default, bool):
            parser.add_argument(leaf.flag, action="store_const", const="true", dest=leaf.key, help=about)
        else:
            what = "S" if leaf.meta.title == "s" else leaf.path[-1].upper()
            parser.add_argument(leaf.flag, metavar=what, dest=leaf.key, help=about)
    return parser


def _given(
    known: Mapping[str, Leaf], process: str, options: argparse.Namespace, environ: Mapping[str, str]
) -> dict[str, tuple[Any, str]]:
    """Key -> value and where it is from, of all that is not default."""
    found: dict[str, tuple[Any, str]] = {}
    if options.config is not None:
        found |= _of_file(known, options.config)
    variables = {leaf.variable(process): leaf for leaf in known.values()}
    for name in sorted(environ):
        if not name.startswith(f"ATOLL_{process.upper()}__"):
            continue
        if name not in variables:
            raise BadSettings(f"environment variable {name}: there is no such setting{_nearest(name, variables)}")
        leaf = variables[name]
        found[leaf.key] = (leaf.read(environ[name], name, text=True), name)
    for item in options.set:
        key, equals, value = item.partition("=")
        if not equals:
            raise BadSettings(f"--set {item}: write KEY=VALUE")
        if key not in known:
            raise BadSettings(f"--set {item}: there is no such setting{_nearest(key, known)}")
        found[key] = (known[key].read(value, "--set", text=True), "--set")
    for key, leaf in known.items():
        if leaf.flag and (value := getattr(options, key)) is not None:
            found[key] = (leaf.read(value, leaf.flag, text=True), leaf.flag)
    return found


def _of_file(known: Mapping[str, Leaf], file: Path) -> dict[str, tuple[Any, str]]:
    import yaml

    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise BadSettings(f"--config {file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSettings(f"--config {file}: is no YAML: {error}") from None
    found: dict[str, tuple[Any, str]] = {}
    sections = {key.rpartition(".")[0] for key in known} | {key.split(".")[0] for key in known if "." in key}

    def read(node: Any, above: str) -> None:
        if not isinstance(node, dict):
            raise BadSettings(
                f"{file}: {above or 'the file'} holds {node!r}: names of settings with their values go there"
            )
        for name, value in node.items():
            key = f"{above}.{name}" if above else str(name)
            if key in known:
                found[key] = (known[key].read(value, str(file), text=False), str(file))
            elif key in sections:
                if value is not None:
                    read(value, key)
            else:
                raise BadSettings(f"{file}: {key}: there is no such setting{_nearest(key, [*known, *sections])}")

    if content is not None:
        read(content, "")
    return found


def _nearest(name: str, names: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    """`; did you mean X?`, by the whole name, else by its last part; empty where nothing is near."""
    known = [each for each in names if each]
    best = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    if not best:
        last = {each.split(".")[-1].lower(): each for each in known}
        best = [last[each] for each in difflib.get_close_matches(name.split(".")[-1].lower(), last, n=1)]
    return f"; did you mean {best[0]}?" if best else ""


def shown(value: Any) -> str:
    """A value as files have it, numbers without needless digits."""
    return f"{value:.10g}" if isinstance(value, float) else json.dumps(value)


def made(model: type[S], values: Mapping[str, Any]) -> S:
    """A tree with these values, by their keys, and defaults else.

    Raises:
        BadSettings: they do not go together.
    """

    def section(kind: Any, default: Any, above: str) -> Any:
        changes = {}
        for field in msgspec.structs.fields(kind):
            key = f"{above}{field.encode_name}"
            present = getattr(default, field.name)
            if isinstance(present, Section):
                changes[field.name] = section(type(present), present, f"{key}.")
            elif key in values:
                changes[field.name] = values[key]
        try:
            return msgspec.structs.replace(default, **changes)
        except ValueError as error:
            raise BadSettings(f"{above.rstrip('.') or 'settings'}: {error}") from None

    found: S = section(model, model(), "")
    return found


def text(model: type[S], settings: S, sources: Mapping[str, str]) -> str:
    """The tree as a file that gives it, with units, and the source of each value that is not the default."""
    lines: list[str] = []
    open_: tuple[str, ...] = ()
    for leaf in leaves(model):
        value: Any = settings
        for name in leaf.path:
            value = getattr(value, _attribute(type(value), name))
        for depth, name in enumerate(leaf.path[:-1]):
            if leaf.path[: depth + 1] != open_[: depth + 1]:
                lines.append(f"{'  ' * depth}{name}:")
        open_ = leaf.path[:-1]
        notes = [each for each in (leaf.meta.title, f"from {sources[leaf.key]}" if leaf.key in sources else "") if each]
        note = f"  # {', '.join(notes)}" if notes else ""
        lines.append(f"{'  ' * (len(leaf.path) - 1)}{leaf.path[-1]}: {shown(value)}{note}")
    return "\n".join(lines) + "\n"


# -- what every process has --------------------------------------------------------------------------------------------


class Health(Section, frozen=True):
    """Where probes ask and metrics are."""

    port: Annotated[
        int,
        number(
            "Port of /healthz, /readyz and /metrics; 0 turns them off. Another one per process, so that all run on one"
            " machine.",
            least=0,
            most=65535,
            flag="--health-port",
        ),
    ] = 8080
    host: Annotated[
        str, words("Address that the port listens on; probes of a kubelet need 0.0.0.0.", flag="--health-host")
    ] = "127.0.0.1"


class Api(Section, frozen=True):
    """Requests to an API server; each server has limits of its own."""

    qps: (
        Annotated[
            float,
            ratio(
                "Most requests, those about leases not counted. No limit by default: the server's own priority"
                " and fairness is one.",
                "1/s",
                flag="--kube-api-qps",
            ),
        ]
        | None
    ) = None
    burst: (
        Annotated[
            int,
            number(
                "Requests that may be sent at once under qps; those of one second by default.", flag="--kube-api-burst"
            ),
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        if self.burst is not None and self.qps is None:
            raise ValueError("burst (--kube-api-burst) means nothing without qps (--kube-api-qps)")


class Election(Section, frozen=True):
    """The lease of the leader; a lease of a process is of all its replicas, so all need the same times."""

    lease: Annotated[
        float,
        seconds("Without a renewal for so long, another replica takes over.", above=0, flag="--lease-seconds"),
    ] = 15.0
    renew_deadline: Annotated[
        float,
        seconds(
            "Without a renewal for so long the leader stops its work. What is then left of the lease is the time in"
            " which it must end.",
            above=0,
            flag="--renew-deadline",
        ),
    ] = 10.0
    retry_period: Annotated[
        float,
        seconds(
            "Between attempts to get or renew the lease; short enough for two of them before the deadline.",
            above=0,
            flag="--retry-period",
        ),
    ] = 2.0

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry_period < self.renew_deadline < self.lease:
            raise ValueError(
                f"2 * retryPeriod ({self.retry_period:g}) < renewDeadline ({self.renew_deadline:g}) < lease"
                f" ({self.lease:g}) must hold"
            )


class Recording(Section, frozen=True):
    """The log that --record writes."""

    rotated_at: Annotated[int, number("After which the next term begins a file of its own.", "B")] = 256 * 2**20
    longest_term: Annotated[
        int, number("After which a term is recorded no further: it can only be replayed from its beginning.", "B")
    ] = 8 * 2**30
    kept: Annotated[int, number("Files of earlier terms.", least=0)] = 4


class ProcessSettings(Section, frozen=True):
    """What every process has; a process adds its own."""

    kubeconfig: Annotated[
        str, words("Credentials for the host; the pod's service account by default.", flag="--kubeconfig")
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], words("Least level that is logged.", flag="--log-level")
    ] = "info"
    drain: Annotated[
        float,
        seconds(
            "Longest time from SIGTERM to the exit: writes under way are waited for, the lease is given back. Below"
            " the 30 s that a kubelet waits.",
            above=0,
            flag="--drain-seconds",
        ),
    ] = 5.0
    health: Health = Health()
    api: Api = Api()


__all__ = [
    "Api",
    "BadSettings",
    "Election",
    "Health",
    "Leaf",
    "ProcessSettings",
    "Recording",
    "Section",
    "leaves",
    "load",
    "made",
    "number",
    "ratio",
    "seconds",
    "shown",
    "text",
    "words",
]
