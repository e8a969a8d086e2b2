"""What delivery sent last, kept on the member's object, so that only what changed on the host is sent again.

A member may have admission webhooks, policies and controllers of its own, which change delivered objects: their
changes stand. The live object is therefore never compared with the Work, only its earlier version is.
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from atoll.model import keys

Json = dict[str, Any]

_MOST = 8 << 20
"""Bytes that a record may unpack to; an object of the API server is smaller."""
MOST_ANNOTATIONS: Final = 240 * 1024
"""Bytes of an object's own annotations and its record: an API server takes 256 KiB, and Atoll writes some more."""
_LONG: Final = 64
"""Characters beyond which a value is recorded as its digest: whether it changed is all that is asked of it."""
_DIGEST: Final = "\0"
"""What a digest in a record begins with."""


def encode(manifest: Mapping[str, Any]) -> str:
    """The record of a manifest as an annotation holds it: packed, since all annotations together may have 256 KiB.

    Of long texts, and of lists that are sent whole, it has digests; names stay, since what goes is known by them.
    """
    packed = zlib.compress(orjson.dumps(_shortened(_sent(manifest)), option=orjson.OPT_SORT_KEYS))
    return base64.b64encode(packed).decode()


def noted(manifest: Mapping[str, Any]) -> int:
    """Bytes of the annotations of a manifest in a member, its record included."""
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    own = sum(len(str(key).encode()) + len(str(text).encode()) for key, text in annotations.items())
    return own + len(encode(manifest))


def recorded(annotations: Mapping[str, str]) -> Json | None:
    """Last sent manifest; None for unknown."""
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(annotations[keys.DELIVERED], validate=True), _MOST)
        found = orjson.loads(raw)
    except (KeyError, binascii.Error, zlib.error, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None


def with_record(manifest: Mapping[str, Any], record: str) -> Json:
    """The manifest with the record of itself."""
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), keys.DELIVERED: record}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def change(last: Mapping[str, Any] | None, manifest: Mapping[str, Any], live: Mapping[str, Any]) -> Json:
    """The merge patch that brings to the live object what changed in the manifest since; empty where nothing did.

    Args:
        last: last sent manifest; None for unknown: then all of the manifest counts as changed.
        manifest: the wanted one.
        live: the object in the member.
    """
    before, after = last if last is not None else {}, _sent(manifest)
    return _difference(live, _merged(before, after, live))


def _sent(manifest: Mapping[str, Any]) -> Json:
    """What of a manifest may change while its object stays."""
    metadata = manifest.get("metadata") or {}
    kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {"metadata": kept, "spec": manifest.get("spec") or {}}


def _shortened(value: Any) -> Any:
    """A value as the record has it."""
    if isinstance(value, str):
        return _digest(value) if len(value) > _LONG or value.startswith(_DIGEST) else value
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and _by_name(value) is None:
            return _digest(value)
        # Their names stay: by these they are known.
        return [{key: each if key == "name" else _shortened(each) for key, each in item.items()} for item in value]
    return value


def _digest(value: Any) -> str:
    found = hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).digest()
    return _DIGEST + base64.b64encode(found[:15]).decode()


def _same(last: Any, wanted: Any) -> bool:
    """Whether a value is the one that was recorded, by itself or by its digest."""
    if isinstance(last, str) and last.startswith(_DIGEST):
        return isinstance(wanted, (str, list)) and last == _digest(wanted)
    if isinstance(last, Mapping) and isinstance(wanted, Mapping):
        return last.keys() == wanted.keys() and all(_same(last[name], wanted[name]) for name in last)
    if isinstance(last, list) and isinstance(wanted, list):
        return len(last) == len(wanted) and all(map(_same, last, wanted))
    return bool(last == wanted)


def _merged(last: Any, wanted: Any, live: Any) -> Any:
    """`live` with the changes from `last` to `wanted`."""
    if _same(last, wanted):
        return live
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        before = last if isinstance(last, Mapping) else {}
        result = dict(live)
        for name in (before.keys() - wanted.keys()) & live.keys():
            rest = _merged(before[name], {}, live[name])
            if rest and isinstance(rest, Mapping):
                result[name] = rest
            else:
                del result[name]
        for name, value in wanted.items():
            if name in live:
                result[name] = _merged(before.get(name), value, live[name])
            elif name not in before or not _same(before[name], value):
                # What the member took away, and the host did not touch, stays away.
                result[name] = value
        return result
    if isinstance(wanted, list) and isinstance(live, list) and not isinstance(last, str):
        named = [_by_name(each) for each in (last if isinstance(last, list) else [], wanted, live)]
        if all(each is not None for each in named):
            merged: Json = _merged(*named)
            return list(merged.values())
    return copy.deepcopy(wanted)


def _by_name(items: Sequence[Any]) -> Json | None:
    """The items of a list by their names; None where one has none, or two have the same."""
    found = {each["name"]: each for each in items if isinstance(each, dict) and isinstance(each.get("name"), str)}
    return found if len(found) == len(items) else None


def _difference(have: Mapping[str, Any], want: Mapping[str, Any]) -> Json:
    """The merge patch that makes one object of the other."""
    patch: Json = {name: None for name in have if name not in want}
    for name, value in want.items():
        if name not in have:
            patch[name] = value
        elif isinstance(value, Mapping) and isinstance(have[name], Mapping):
            if below := _difference(have[name], value):
                patch[name] = below
        elif have[name] != value:
            patch[name] = value
    return patch
