"""Random nodes of devices with claims on them, and an allocator without any cut to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from random import Random

from atoll.fit.devices.search import Pick
from atoll.fit.devices.sharing import consumption
from atoll.model.device_claims import MOST_RESULTS, Claim, Constraint, DeviceClass, Request, Wish
from atoll.model.devices import Attribute, Capacity, Device, DeviceId, Nodes, Pool, Taint, Taken, Toleration
from atoll.model.quantity import parse

NODE = "node"
KINDS = ("gpu", "nic")
KIND, ROOT, SLOT = "d/kind", "d/root", "d/slot"
CLASSES = {name: DeviceClass(name, (name,)) for name in (*KINDS, "any")}
Pair = tuple[str, DeviceId]
"""The name of a wish and its device."""


def selects(kind: str, device: Device) -> bool:
    """The selector `gpu` takes GPUs; `any` takes all."""
    return kind == "any" or device.attributes[KIND].values == (kind,)


@dataclass(frozen=True)
class Case:
    pools: list[Pool]
    claims: list[Claim]
    taken: Taken


def random_case(rng: Random) -> Case:
    pools = [_pool(rng, name) for name in ("a", "b")[: rng.randint(1, 2)]]
    devices = [device for pool in pools for device in pool.devices]
    whole = frozenset(each.id for each in devices if not each.shared and rng.random() < 0.15)
    consumed = {
        each.id: {"memory": Fraction(rng.randint(1, 6))} for each in devices if each.shared and rng.random() < 0.3
    }
    claims = [_claim(rng, f"claim-{number}") for number in range(rng.choice((1, 1, 2)))]
    return Case(pools, claims, Taken(whole, consumed))


def _pool(rng: Random, name: str) -> Pool:
    partitioned = rng.random() < 0.3
    devices = tuple(_device(rng, name, number, partitioned) for number in range(rng.randint(1, 5)))
    return Pool("d", name, devices, counters={("set", "slices"): Fraction(rng.randint(1, 6))} if partitioned else {})


def _device(rng: Random, pool: str, number: int, partitioned: bool) -> Device:
    attributes = {KIND: Attribute("string", (rng.choice(KINDS),)), SLOT: Attribute("int", (rng.randint(0, 2),))}
    if rng.random() < 0.9:
        roots = tuple(rng.sample(("r0", "r1", "r2"), rng.choice((1, 1, 1, 2))))
        attributes[ROOT] = Attribute("string", roots, is_list=len(roots) > 1)
    shared = rng.random() < 0.2
    policy = rng.choice(
        (Capacity("8"), Capacity("8", "2", ("2", "4", "8")), Capacity("8", "1", (), "1", "6", "1", True))
    )
    return Device(
        DeviceId("d", pool, f"{pool}-{number}"),
        attributes,
        {"memory": policy} if shared or rng.random() < 0.3 else {},
        {("set", "slices"): Fraction(rng.randint(1, 3))} if partitioned and rng.random() < 0.8 else {},
        (Taint("t", "", "NoSchedule"),) if rng.random() < 0.1 else (),
        shared,
        Nodes(NODE),
    )


def _claim(rng: Random, name: str) -> Claim:
    whole = rng.random() < 0.2
    requests = tuple(_request(rng, f"r{number}", whole) for number in range(rng.randint(1, 3)))
    constraints: list[Constraint] = []
    while not whole and rng.random() < 0.5 and len(constraints) < 2:
        named = tuple(each.name for each in requests if rng.random() < 0.6)
        constraints.append(Constraint(named, rng.choice((ROOT, SLOT)), distinct=rng.random() < 0.4))
    return Claim(name, requests, tuple(constraints))


def _request(rng: Random, name: str, whole: bool) -> Request:
    if rng.random() < 0.25:
        return Request(name, tuple(_wish(rng, f"{name}/{each}", whole) for each in "xy"))
    return Request(name, (_wish(rng, name, whole),))


def _wish(rng: Random, name: str, whole: bool) -> Wish:
    return Wish(
        name,
        rng.choice((*KINDS, "any")),
        count=None if whole and rng.random() < 0.5 else rng.choice((1, 1, 2, 3)),
        admin=rng.random() < 0.1,
        tolerations=(Toleration("t", "Exists", "", ""),) if rng.random() < 0.2 else (),
        capacity=(("memory", str(rng.randint(1, 4))),) if rng.random() < 0.2 else (),
    )


def first_solution(case: Case) -> list[Pair] | None:
    """Every combination in order, each wholly checked: request after request, the first alternative first."""
    found = next(_solutions(case, [request for claim in case.claims for request in claim.requests], []), None)
    return None if found is None else [(wish.name, device.id) for _, wish, device in found]


Chosen = list[tuple[Claim, Wish, Device]]


def _solutions(case: Case, requests: Sequence[Request], chosen: Chosen) -> Iterator[Chosen]:
    if not requests:
        yield chosen
        return
    claim = next(each for each in case.claims if any(request is requests[0] for request in each.requests))
    for wish in requests[0].wishes:
        devices = [
            device
            for pool in case.pools
            for device in pool.devices
            if selects(wish.device_class, device) and _holds(case, wish, device)
        ]
        for devices_ in combinations(devices, wish.count or len(devices) or 1):
            longer = [*chosen, *((claim, wish, device) for device in devices_)]
            if valid(case, longer):
                yield from _solutions(case, requests[1:], longer)


def _holds(case: Case, wish: Wish, device: Device) -> bool:
    """Whether it has the capacity, alone."""
    amounts = consumption(dict(wish.capacity), device.capacity)
    if amounts is None:
        return False
    used = case.taken.consumed.get(device.id, {}) if device.shared else {}
    return all(parse(text) + used.get(name, 0) <= 8 for name, text in amounts.items())


def valid(case: Case, chosen: Chosen) -> bool:
    """Whether devices for wishes break no rule."""
    return (
        all(map(_tolerated, chosen))
        and _exclusive(case, chosen)
        and _within_capacity(case, chosen)
        and _within_counters(case, chosen)
        and all(
            _constrained(
                constraint, [device for owner, wish, device in chosen if owner is claim and constraint.applies(wish)]
            )
            for claim in case.claims
            for constraint in claim.constraints
        )
        and all(sum(owner is claim for owner, _, _ in chosen) <= MOST_RESULTS for claim in case.claims)
    )


def _tolerated(each: tuple[Claim, Wish, Device]) -> bool:
    _, wish, device = each
    return all(any(toleration.tolerates(taint) for toleration in wish.tolerations) for taint in device.taints)


def _exclusive(case: Case, chosen: Chosen) -> bool:
    for number, (claim, wish, device) in enumerate(chosen):
        earlier = [each for each in chosen[:number] if each[2] is device]
        if not wish.admin and device.id in case.taken.devices:
            return False
        if device.shared:
            if any(each[1] is wish and each[0] is claim for each in earlier):
                return False
        elif any(not wish.admin or owner is claim for owner, _, _ in earlier):
            return False
    return True


def _within_capacity(case: Case, chosen: Chosen) -> bool:
    used = {device: dict(amounts) for device, amounts in case.taken.consumed.items()}
    for _, wish, device in chosen:
        if device.shared:
            amounts = consumption(dict(wish.capacity), device.capacity)
            assert amounts is not None
            mine = used.setdefault(device.id, {})
            for name, text in amounts.items():
                mine[name] = mine.get(name, Fraction()) + parse(text)
    return all(amount <= 8 for amounts in used.values() for amount in amounts.values())


def _within_counters(case: Case, chosen: Chosen) -> bool:
    for pool in case.pools:
        devices = {device.id: device for device in pool.devices if case.taken.holds(device.id)}
        held = list(devices.values())
        before = {name: sum(each.counters.get(name, 0) for each in held) for name in pool.counters}
        mine = [device for _, _, device in chosen if any(device is each for each in pool.devices)]
        # Shares of one device consume its counters once, access for administration does every time.
        consuming = [each for each in mine if not each.shared]
        consuming += [each for each in dict.fromkeys(each for each in mine if each.shared) if each.id not in devices]
        for name, total in pool.counters.items():
            more = sum(each.counters.get(name, Fraction()) for each in consuming)
            if any(each.counters for each in consuming) and before[name] + more > total:
                return False
    return True


def _constrained(constraint: Constraint, devices: Sequence[Device]) -> bool:
    members = [
        found.members if (found := device.attribute(constraint.attribute)) else frozenset() for device in devices
    ]
    if not all(members):
        return False
    if constraint.distinct:
        return all(left.isdisjoint(right) for left, right in combinations(members, 2))
    return not members or bool(frozenset.intersection(*members))


def pairs(picks: Sequence[Pick]) -> list[Pair]:
    return [(pick.ask.wish.name, pick.option.device.id) for pick in picks]


def chosen_of(case: Case, picks: Sequence[Pick]) -> Chosen:
    return [(case.claims[pick.ask.claim], pick.ask.wish, pick.option.device) for pick in picks]
