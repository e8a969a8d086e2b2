"""Equal texts of objects are kept once: values of an object's metadata are mostly in many others too."""

from __future__ import annotations

from msgspec.structs import force_setattr

from atoll.model.objects import Meta

_MOST, _LONGEST = 65_536, 256
"""How many texts, of how many characters at most, are kept once for all objects that hold them."""
_NONE: list[str] = []


class SharedTexts:
    """Texts of the metadata of one resource's objects."""

    def __init__(self) -> None:
        #: text -> itself
        self._texts: dict[str, str] = {}

    def share(self, meta: Meta, present: int) -> None:
        """Have the metadata of an object hold texts that others hold too; `present`: objects that there are."""
        texts = self._texts
        # No more than present objects can share: names and times of objects that are gone would only fill memory.
        if len(texts) > min(_MOST, 1024 + 4 * present):
            texts.clear()
        once = texts.setdefault
        force_setattr(meta, "namespace", once(meta.namespace, meta.namespace))
        force_setattr(meta, "creation_timestamp", once(meta.creation_timestamp, meta.creation_timestamp))
        for values in (meta.labels, meta.annotations):
            for name, value in values.items():
                if len(value) <= _LONGEST:
                    values[name] = once(value, value)
        for owner in meta.owner_references:
            for field in ("kind", "name", "uid"):
                value = getattr(owner, field)
                force_setattr(owner, field, once(value, value))
        if not meta.finalizers:
            force_setattr(meta, "finalizers", _NONE)
