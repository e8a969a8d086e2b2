"""Parts of a device's capacity: the amount that a request consumes under the driver's policy.

Rules of consumable capacity in resource.k8s.io/v1: a request is rounded up to a valid amount, an absent one becomes
the default, or all there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from atoll.model.devices import Capacity
from atoll.model.quantity import parse


def consumption(requests: Mapping[str, str], capacity: Mapping[str, Capacity]) -> dict[str, str] | None:
    """The quantity of each capacity that a share consumes; None where the device can never give it."""
    if any(name not in capacity for name in requests):
        return None
    found = {name: _rounded(requests.get(name), each) for name, each in capacity.items()}
    allowed = all(_allowed(parse(found[name]), each) for name, each in capacity.items())
    return found if allowed else None


def _rounded(request: str | None, capacity: Capacity) -> str:
    if request is None:
        return capacity.default if capacity.default is not None else capacity.value
    wanted = parse(request)
    if capacity.minimum is not None:
        minimum = parse(capacity.minimum)
        if wanted < minimum:
            return capacity.minimum
        if capacity.step is None:
            return request
        # Kubernetes counts steps in whole units.
        first, step = -(-minimum // 1), -(-parse(capacity.step) // 1)
        return str(first + -((first - -(-wanted // 1)) // step) * step)
    return next((each for each in capacity.valid_values if wanted <= parse(each)), request)


def _allowed(amount: Fraction, capacity: Capacity) -> bool:
    if amount > parse(capacity.value):
        return False
    if capacity.default is not None and amount == parse(capacity.default):
        return True
    if capacity.ranged:
        if capacity.maximum is not None and amount > parse(capacity.maximum):
            return False
        if capacity.step is None:
            return True
        first, step = -(-parse(capacity.minimum or "0") // 1), -(-parse(capacity.step) // 1)
        return (-(-amount // 1) - first) % step == 0
    return not capacity.valid_values or amount in map(parse, capacity.valid_values)
