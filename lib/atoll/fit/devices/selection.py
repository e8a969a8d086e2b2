"""Answers of CEL selectors about devices, kept by expression and content: equal devices are evaluated once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from atoll.cel import CompileError, DeviceView, Selector, compile
from atoll.cel.values import LIMIT
from atoll.fit.devices.problem import SelectionError
from atoll.model.devices import Device

_KEPT = 262_144


class Selection:
    """`Selects` by CEL."""

    def __init__(self, *, list_attributes: bool = False, limit: int = LIMIT) -> None:
        """`list_attributes` is the feature gate DRAListTypeAttributes of the cluster; `limit` bounds the cost of one
        evaluation.
        """
        self._list_attributes, self._limit = list_attributes, limit
        #: cost of all answers that were not known
        self.spent = 0
        self._views: WeakKeyDictionary[Device, DeviceView] = WeakKeyDictionary()

    def __call__(self, expression: str, device: Device) -> bool:
        """Whether the expression selects the device.

        Raises:
            SelectionError: it is no selector, or fails on the device.
        """
        try:
            selector = compile(expression, list_attributes=self._list_attributes)
        except CompileError as error:
            raise SelectionError(f"selector {expression!r}: {error}") from error
        view = self._views.get(device)
        if view is None:
            view = self._views[device] = self._view(device)
        before = _answer.cache_info().misses
        answer, cost = _answer(selector, view, self._limit)
        if _answer.cache_info().misses != before:
            self.spent += cost
        if isinstance(answer, str):
            raise SelectionError(f"selector {expression!r}: {answer}")
        return answer

    def _view(self, device: Device) -> DeviceView:
        attributes: dict[str, Any] = {
            name: {f"{each.type}s": each.values} if each.is_list else {each.type: each.values[0]}
            for name, each in device.attributes.items()
            if each.values
        }
        raw = {
            "attributes": attributes,
            "capacity": {name: {"value": each.value} for name, each in device.capacity.items()},
            "allowMultipleAllocations": device.shared,
        }
        return DeviceView(device.id.driver, raw, list_attributes=self._list_attributes)


@lru_cache(maxsize=_KEPT)
def _answer(selector: Selector, view: DeviceView, limit: int) -> tuple[bool | str, int]:
    return selector.attempt(view, limit=limit)
