"""What the operator knows about the cluster, apart from the DevicePluginConfigs: six watches.

Nodes and inventories of the whole cluster; in our namespace, by our labels: DaemonSets, ConfigMaps (metadata only),
agent pods and accepted specs. A change enqueues the DevicePluginConfigs that it may concern.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from device_agent.contract import names

from device_operator.cluster import revisions, views
from device_operator.cluster.client import ApiResource, Object
from device_operator.cluster.collection import Change, Collection
from device_operator.cluster.revisions import Revision
from device_operator.cluster.views import Owned
from device_operator.spec.model import ConfigRef, Pool
from device_operator.spec.placement import NodeView
from device_operator.status.conflicts import Hardware, offered_hardware
from device_operator.status.observed import DaemonSetView, InventoryView, PodView

logger = logging.getLogger(__name__)

V = TypeVar("V")

NODES: Final = ApiResource("", "v1", "nodes")
INVENTORIES: Final = ApiResource(names.GROUP, names.VERSION, "nodedeviceinventories")
CONFIGS: Final = ApiResource(names.GROUP, names.VERSION, "devicepluginconfigs")


def daemonsets(namespace: str) -> ApiResource:
    return ApiResource("apps", "v1", "daemonsets", namespace)


def configmaps(namespace: str) -> ApiResource:
    return ApiResource("", "v1", "configmaps", namespace)


def pods(namespace: str) -> ApiResource:
    return ApiResource("", "v1", "pods", namespace)


def controllerrevisions(namespace: str) -> ApiResource:
    return ApiResource("apps", "v1", "controllerrevisions", namespace)


class _Groups(Generic[V]):
    """Views by the DevicePluginConfig to which they belong, so that a pass reads only its own."""

    def __init__(self, config_of: Callable[[V], str]) -> None:
        self._config_of = config_of
        self._groups: dict[str, dict[str, V]] = defaultdict(dict)

    def apply(self, change: Change[V]) -> set[str]:
        """Returns the names of the configs that the change concerns."""
        concerned = set()
        if change.old is not None:
            config = self._config_of(change.old)
            concerned.add(config)
            self._groups[config].pop(change.name, None)
            if not self._groups[config]:
                del self._groups[config]
        if change.new is not None:
            config = self._config_of(change.new)
            concerned.add(config)
            self._groups[config][change.name] = change.new
        return concerned

    def of(self, config: str) -> Iterable[V]:
        return self._groups[config].values() if config in self._groups else ()


class ClusterCache:
    """`enqueue(name)` is called for each DevicePluginConfig that a change may concern.

    `concerned(old, new)`: names of those that the change of a node concerns. `reconsider()` is called when accepted
    specs change, or what runs: another object may wait for nodes that were held. `heartbeat_stale`: seconds of silence
    after which a heartbeat enqueues its object.
    """

    def __init__(
        self,
        *,
        namespace: str,
        enqueue: Callable[[str], None],
        concerned: Callable[[NodeView | None, NodeView | None], Iterable[str]],
        reconsider: Callable[[], None] = lambda: None,
        heartbeat_stale: float = 1500.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._enqueue = enqueue
        self._concerned = concerned
        self._reconsider = reconsider
        self._heartbeat_stale = heartbeat_stale
        self._now = now
        label = names.LABEL_CONFIG
        self.nodes = Collection(NODES, prune=views.node, changed=self._node_changed)
        self.daemonsets = Collection(
            daemonsets(namespace), prune=views.daemonset, changed=self._owned_changed, labels=label
        )
        self.configmaps = Collection(
            configmaps(namespace), prune=views.configmap, changed=self._owned_changed, labels=label, metadata_only=True
        )
        self.pods = Collection(pods(namespace), prune=views.pod, changed=self._pod_changed, labels=label)
        # a spec may be 1 MiB: a page of them must not cost more than one of nodes
        self.revisions = Collection(
            controllerrevisions(namespace),
            prune=revisions.revision,
            changed=self._revision_changed,
            labels=revisions.LABEL,
            page=20,
        )
        # an inventory may be 256 KiB: a page of them must not cost more than one of nodes
        self.inventories = Collection(
            INVENTORIES, prune=self._prune_inventory, changed=self._inventory_changed, page=100
        )
        self._owned = _Groups[Owned](lambda o: o.config)
        self._revisions = _Groups[Revision](lambda r: r.config)
        self._pods = _Groups[PodView](lambda p: p.config)
        self._inventories = _Groups[InventoryView](lambda i: i.config)
        self._inventories_on = _Groups[InventoryView](lambda i: i.node)

    @property
    def collections(self) -> tuple[Collection[Any], ...]:
        return (self.nodes, self.daemonsets, self.configmaps, self.pods, self.revisions, self.inventories)

    @property
    def complete(self) -> bool:
        """Every list was read in full once: an object that is absent does not exist."""
        return all(c.complete.is_set() for c in self.collections)

    async def wait_complete(self) -> None:
        await asyncio.gather(*(c.complete.wait() for c in self.collections))

    def owned(self, config: str) -> tuple[Owned, ...]:
        """DaemonSets and ConfigMaps with the config's label, whoever owns them."""
        return tuple(self._owned.of(config))

    def daemonsets_of(self, ref: ConfigRef) -> tuple[DaemonSetView, ...]:
        """Those that the object owns."""
        return tuple(o.daemonset for o in self.owned(ref.name) if o.owner_uid == ref.uid and o.daemonset is not None)

    def revisions_of(self, ref: ConfigRef) -> tuple[Revision, ...]:
        """Those that the object owns, intact or not."""
        return tuple(r for r in self._revisions.of(ref.name) if r.owner_uid == ref.uid)

    def pods_of(self, config: str) -> tuple[PodView, ...]:
        return tuple(self._pods.of(config))

    def inventories_of(self, config: str) -> tuple[InventoryView, ...]:
        return tuple(self._inventories.of(config))

    def inventories_on(self, node: str) -> tuple[InventoryView, ...]:
        """Of every config."""
        return tuple(self._inventories_on.of(node))

    def _prune_inventory(self, raw: Object, before: InventoryView | None) -> InventoryView:
        return views.inventory(raw, before, now=self._now())

    def _node_changed(self, change: Change[NodeView]) -> None:
        for name in self._concerned(change.old, change.new):
            self._enqueue(name)

    def _owned_changed(self, change: Change[Owned]) -> None:
        # a DaemonSet and a ConfigMap may have one name
        for name in self._owned.apply(replace(change, name=f"{(change.new or change.old).kind}/{change.name}")):  # type: ignore[union-attr]
            self._enqueue(name)
        if _runs(change.old) != _runs(change.new):  # another object may wait for what is let go
            self._reconsider()

    def _revision_changed(self, change: Change[Revision]) -> None:
        for name in self._revisions.apply(change):
            self._enqueue(name)
        self._reconsider()

    def _pod_changed(self, change: Change[PodView]) -> None:
        for name in self._pods.apply(change):
            self._enqueue(name)

    def _inventory_changed(self, change: Change[InventoryView]) -> None:
        concerned = self._inventories.apply(change)
        nodes = self._inventories_on.apply(change)
        if _offered(change.old) != _offered(change.new):  # a conflict with another object may begin or end
            concerned |= {i.config for node in nodes for i in self.inventories_on(node)}
        if change.old is None or change.new is None or self._is_news(change.old, change.new):
            for name in concerned:
                self._enqueue(name)

    def _is_news(self, old: InventoryView, new: InventoryView) -> bool:
        """A heartbeat alone is not news, unless it ends a silence: 5,000 nodes send 8 a second."""
        if (new.heartbeat_seen - old.heartbeat_seen).total_seconds() > self._heartbeat_stale:
            return True
        return replace(old, heartbeat_seen=new.heartbeat_seen, heartbeat=new.heartbeat) != new


def _runs(owned: Owned | None) -> Pool | None:
    return owned.daemonset.runs if owned is not None and owned.daemonset is not None else None


def _offered(inventory: InventoryView | None) -> tuple[frozenset[str], Hardware | None]:
    """The resource names and the hardware about which objects on one node may conflict."""
    if inventory is None or inventory.status is None:
        return frozenset(), None
    return frozenset(r.name for r in inventory.status.resources if r.devices), offered_hardware(inventory)
