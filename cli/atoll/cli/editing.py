"""An object in the user's editor, as `kubectl edit` does it: again and again until the server takes it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll.cli.errors import CommandError

Json = dict[str, Any]

_HEAD = """\
# Edit the object below; lines that begin with '#' are left out, and an empty file abandons the edit.
# If it can't be taken, this file is opened again and says why.
#
"""
_KEPT = ("apiVersion", "kind", "metadata.name")


class Refused(Exception):
    """The server does not take it as it is; the message says why, and the user may go on editing."""


def edit(content: Json, submit: Callable[[Json], None]) -> bool:
    """Have an object changed; whether anything was.

    Args:
        content: what the user is to see.
        submit: given the merge patch; raises `Refused` to have the file opened again.

    Raises:
        CommandError: there is no editor, or it failed, or the user gave up on a refused text.
        Exception: as `submit` raises; a copy of the edited text is kept.
    """
    import yaml

    file, problem = _new_file(), ""
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
    while True:
        file.write_text(_HEAD + _commented(problem) + text, "utf-8")
        _open_editor(file)
        edited = _plain(file.read_text("utf-8"))
        if problem and (edited == text or not edited.strip()):
            raise CommandError(f"{problem}\nEdit cancelled, no valid changes were saved; yours are in {file}")
        try:
            patch = _patch(content, _read(edited)) if edited.strip() else {}
            if patch:
                submit(patch)
        except Refused as error:
            text, problem = edited, str(error)
            continue
        except Exception:
            print(f"A copy of your changes has been stored to {file}", file=sys.stderr)
            raise
        file.unlink()
        if not patch:
            print("Edit cancelled, no changes made.", file=sys.stderr)
        return bool(patch)


def merge_patch(before: Any, after: Any) -> Any:
    """The JSON merge patch (RFC 7386) from one object to another; empty where they are alike."""
    patch: Json = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := merge_patch(old, value):
                patch[name] = inner
        elif old != value or name not in before:
            patch[name] = value
    return patch


def _patch(before: Json, after: Any) -> Json:
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        raise Refused("what was saved is no object with metadata")
    for path in _KEPT:
        old, new = (_at(each, path) for each in (before, after))
        if old != new:
            raise Refused(f"{path} can't be changed: it was {old!r}")
    found: Json = merge_patch(before, after)
    return found


def _at(content: Any, path: str) -> Any:
    for name in path.split("."):
        content = content.get(name) if isinstance(content, dict) else None
    return content


def _read(text: str) -> Any:
    from atoll.model import documents

    try:
        return next(iter(documents.read_yaml_file(text)), None)
    except documents.BadDocument as error:
        raise Refused(f"the file can't be read: {error}") from error


def _plain(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def _commented(problem: str) -> str:
    return "".join(f"# {line}\n" for line in problem.splitlines()) + ("#\n" if problem else "")


def _new_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="atollctl-edit-", suffix=".yaml")
    os.close(handle)
    return Path(name)


def _open_editor(file: Path) -> None:
    editor = os.environ.get("KUBE_EDITOR") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.call([*shlex.split(editor), str(file)])
    except (OSError, ValueError) as error:
        file.unlink()
        raise CommandError(f"the editor {editor!r} can't be started ({error}): set KUBE_EDITOR or EDITOR") from error
    if code:
        raise CommandError(f"the editor {editor!r} ended with code {code}; the file is {file}")
