"""What delivery sent last, kept on the member's object, so that only what changed on the host is sent again.

A member may have admission webhooks, policies and controllers of its own, which change what was delivered: their
changes stand. The live object is therefore never compared with the Work, only what was sent before is.
"""

from __future__ import annotations

import base64
import binascii
import copy
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from atoll.model import keys

Json = dict[str, Any]

_MOST = 8 << 20
"""Bytes that a record may unpack to; an object of the API server is smaller."""


def encode(manifest: Mapping[str, Any]) -> str:
    """The record of a manifest as an annotation holds it: packed, since all annotations together may have 256 KiB."""
    packed = zlib.compress(orjson.dumps(_sent(manifest), option=orjson.OPT_SORT_KEYS))
    return base64.b64encode(packed).decode()


def recorded(annotations: Mapping[str, str]) -> Json | None:
    """What was sent last; None where that is not known."""
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
        last: what was sent last; None where that is not known: then all that the manifest says counts as changed.
        manifest: what is wanted now.
        live: the object in the member.
    """
    before, after = last if last is not None else {}, _sent(manifest)
    return _difference(live, _merged(before, after, live))


def _sent(manifest: Mapping[str, Any]) -> Json:
    """What of a manifest may change while its object stays."""
    metadata = manifest.get("metadata") or {}
    kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {"metadata": kept, "spec": manifest.get("spec") or {}}


def _merged(last: Any, wanted: Any, live: Any) -> Any:
    """`live` with the changes from `last` to `wanted`."""
    if last == wanted:
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
            elif name not in before or before[name] != value:
                # What the member took away, and the host did not touch, stays away.
                result[name] = value
        return result
    if isinstance(wanted, list) and isinstance(live, list):
        named = [_by_name(each) for each in (last if isinstance(last, list) else [], wanted, live)]
        if all(each is not None for each in named):
            merged: Json = _merged(*named)
            return list(merged.values())
    return copy.deepcopy(wanted)


def _by_name(items: Sequence[Any]) -> Json | None:
    """The items of a list by their names; None where one has none, or two have the same."""
    found = {each["name"]: each for each in items if isinstance(each, Mapping) and isinstance(each.get("name"), str)}
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
