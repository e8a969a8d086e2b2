"""The node of Koordinator's own tests: 8 GPUs and 4 NICs of 30 virtual functions, two GPUs and a NIC under each root."""

from __future__ import annotations

from typing import Any

TOTAL = 83201216 * 1024
BUSES = ("1f", "90", "51", "b9")
SAME = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
BESIDE = {"deviceTypes": ["gpu", "rdma"]}
GENERAL = {"rdma": {"vfSelector": {"matchLabels": {"type": "general"}}}}
Json = dict[str, Any]


def nic(minor: int, root: str, bus: str, *, vfs: int = 30, numa: int = 0, **more: Any) -> Json:
    made = [{"busID": f"0000:{bus}:{(at + 2) // 8:02x}.{(at + 2) % 8}", "minor": at} for at in range(vfs)]
    return {
        "type": "rdma", "minor": minor, "id": f"0000:{bus}:00.0", "health": True, "labels": {"type": "fakeW"},
        "topology": {"nodeID": numa, "pcieID": root}, "vfGroups": [{"labels": {"type": "general"}, "vfs": made}],
    } | more  # fmt: skip


def gpu(minor: int, root: str, *, numa: int = 0, **more: Any) -> Json:
    return {
        "type": "gpu", "minor": minor, "health": True, "topology": {"nodeID": numa, "pcieID": root},
        "resources": {"koordinator.sh/gpu-memory": "83201216Ki"},
    } | more  # fmt: skip


def fixture() -> list[Json]:
    nics = [nic(at + 1, str(at), bus, numa=at // 2) for at, bus in enumerate(BUSES)]
    return nics + [gpu(at, str(at // 2), numa=at // 4) for at in range(8)]
