"""Events about nodes, domains, devices and namespaces, as `Room` takes them in."""

from __future__ import annotations

from atoll.agent.scheduler.core.events import (
    CsiNodeGone,
    CsiNodeSet,
    DeviceClassGone,
    DeviceClassSet,
    HyperNodeGone,
    HyperNodeSet,
    KoordinatorGone,
    KoordinatorSet,
    Measured,
    NamespaceGone,
    NamespaceSet,
    NodeEvent,
    NodeGone,
    NodeSet,
    NodesUsed,
    NumaGone,
    NumaSet,
    SliceGone,
    SliceSet,
    TaintRuleGone,
    TaintRuleSet,
)
from atoll.agent.scheduler.core.heat import Heat
from atoll.agent.scheduler.core.kept import Kept
from atoll.agent.scheduler.core.room import Room
from atoll.model import gpu_partitions, keys, koordinator
from atoll.model.placer import parse_selector
from atoll.model.selectors import label_selector_matches


class NodeEvents:
    """Feeds one `Room`."""

    def __init__(self, room: Room, kept: Kept) -> None:
        """`kept` are places that nodes keep for pods."""
        self._room, self._kept = room, kept
        #: nodes too hot for pods of low priority
        self.heat = Heat(room)

    def take(self, event: NodeEvent) -> bool:
        """Take one in. True if a pass may find something to do."""
        room, book, version = self._room, self._room.devices, self._room.version
        match event:
            case NodeSet(node):
                room.node_changed(node.metadata.name, self.heat.node_changed(node))
                self._kept.node_changed(node.metadata.name, node.metadata.annotations.get(keys.KEPT_PLACES, ""))
                return room.version != version
            case NodeGone(name):
                room.node_changed(name, None)
                self._kept.node_changed(name, "")
                self.heat.node_gone(name)
                return room.version != version
            case NodesUsed(text):
                selector = parse_selector(text)
                room.use_nodes(lambda node: label_selector_matches(selector, node.metadata.labels))
                return room.version != version
            case HyperNodeSet(domain):
                room.hyper_node_changed(domain.metadata.name, domain)
                return room.version != version
            case HyperNodeGone(name):
                room.hyper_node_changed(name, None)
                return room.version != version
            case Measured(uses):
                room.arrays.measured(uses)
                return False
            case KoordinatorGone(name):
                room.koordinator_changed(name, {})
                return False
            case KoordinatorSet(device):
                about = device.metadata
                table = gpu_partitions.of_device(about.annotations, about.labels)
                room.koordinator_changed(about.name, koordinator.devices(device.spec), table)
            case CsiNodeSet(csi_node):
                room.limits_changed(csi_node.metadata.name, csi_node.limits)
            case CsiNodeGone(name):
                room.limits_changed(name, {})
            case NumaSet(numa, zones):
                room.numa_changed(numa.metadata.name, numa, zones=zones)
            case NumaGone(name, zones):
                room.numa_changed(name, None, zones=zones)
            case SliceSet(found):
                book.slice_changed(found.metadata.name, found)
            case SliceGone(name):
                book.slice_changed(name, None)
            case DeviceClassSet(made):
                book.class_changed(made.metadata.name, made)
            case DeviceClassGone(name):
                book.class_changed(name, None)
            case TaintRuleSet(rule):
                book.rule_changed(rule.metadata.name, rule)
            case TaintRuleGone(name):
                book.rule_changed(name, None)
            case NamespaceSet(name, labels):
                room.namespace_changed(name, labels)
            case NamespaceGone(name):
                room.namespace_changed(name, None)
        return room.grew
