"""What the operator knows of the cluster beside the DevicePluginConfigs: five watches, and who is told of a change.

Nodes of the whole cluster; DaemonSets, ConfigMaps (metadata only) and agent pods of our namespace by our label;
inventories. A change enqueues the objects it may concern, never all of them.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from device_agent.contract import names

from device_operator.cluster import views
from device_operator.cluster.client import UNREACHABLE, ApiError, ApiResource, Client, Object
from device_operator.cluster.collection import Change, Collection
from device_operator.cluster.views import Owned
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import NodeView
from device_operator.status.conflicts import offered_hardware
from device_operator.status.observed import DaemonSetView, FailedCreate, InventoryView, PodView, PodWarning

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


def events(namespace: str) -> ApiResource:
    return ApiResource("", "v1", "events", namespace)


class _Groups(Generic[V]):
    """Views by the DevicePluginConfig they belong to, so that a pass does not walk over those of others."""

    def __init__(self, config_of: Callable[[V], str]) -> None:
        self._config_of = config_of
        self._groups: dict[str, dict[str, V]] = defaultdict(dict)

    def apply(self, change: Change[V]) -> set[str]:
        """The configs concerned."""
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

    `concerned(old, new)` names those that a node's change concerns. `reconsider()`: what DaemonSets hold has moved,
    and somebody may have waited for it. `heartbeat_stale`: seconds after which a
    heartbeat that moves again is news.
    """

    def __init__(
        self,
        *,
        namespace: str,
        enqueue: Callable[[str], None],
        concerned: Callable[[NodeView | None, NodeView | None], Iterable[str]],
        reconsider: Callable[[], None] = lambda: None,
        heartbeat_stale: float = 1500.0,
        failed_create_seconds: float = 10.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._namespace = namespace
        self._enqueue = enqueue
        self._concerned = concerned
        self._reconsider = reconsider
        self._heartbeat_stale = heartbeat_stale
        self._failed_create_seconds = failed_create_seconds
        self._now = now
        self._failed: dict[str, tuple[float, tuple[FailedCreate, ...]]] = {}
        self._warned: dict[str, tuple[float, PodWarning | None]] = {}
        label = names.LABEL_CONFIG
        self.nodes = Collection(NODES, prune=views.node, changed=self._node_changed)
        self.daemonsets = Collection(
            daemonsets(namespace), prune=views.daemonset, changed=self._owned_changed, labels=label
        )
        self.configmaps = Collection(
            configmaps(namespace), prune=views.configmap, changed=self._owned_changed, labels=label, metadata_only=True
        )
        self.pods = Collection(pods(namespace), prune=views.pod, changed=self._pod_changed, labels=label)
        # an inventory may be 256 KiB: a page of them must not cost more than one of nodes
        self.inventories = Collection(
            INVENTORIES, prune=self._prune_inventory, changed=self._inventory_changed, page=100
        )
        self._owned = _Groups[Owned](lambda o: o.config)
        self._pods = _Groups[PodView](lambda p: p.config)
        self._inventories = _Groups[InventoryView](lambda i: i.config)
        self._inventories_on = _Groups[InventoryView](lambda i: i.node)

    @property
    def collections(self) -> tuple[Collection[Any], ...]:
        return (self.nodes, self.daemonsets, self.configmaps, self.pods, self.inventories)

    @property
    def complete(self) -> bool:
        """Every list has been read once in full: from here on, absence means absence."""
        return all(c.complete.is_set() for c in self.collections)

    async def wait_complete(self) -> None:
        await asyncio.gather(*(c.complete.wait() for c in self.collections))

    def owned(self, config: str) -> tuple[Owned, ...]:
        """DaemonSets and ConfigMaps with the config's label, whoever owns them."""
        return tuple(self._owned.of(config))

    def daemonsets_of(self, ref: ConfigRef) -> tuple[DaemonSetView, ...]:
        """Those that the object owns."""
        return tuple(o.daemonset for o in self.owned(ref.name) if o.owner_uid == ref.uid and o.daemonset is not None)

    def pods_of(self, config: str) -> tuple[PodView, ...]:
        return tuple(self._pods.of(config))

    def inventories_of(self, config: str) -> tuple[InventoryView, ...]:
        return tuple(self._inventories.of(config))

    def inventories_on(self, node: str) -> tuple[InventoryView, ...]:
        """Of every config."""
        return tuple(self._inventories_on.of(node))

    async def failed_creates(self, client: Client, names_of_daemonsets: Iterable[str]) -> tuple[FailedCreate, ...]:
        """FailedCreate events of these DaemonSets; an answer is good for `failed_create_seconds`."""
        found: list[FailedCreate] = []
        for name in names_of_daemonsets:
            asked, known = self._failed.get(name, (float("-inf"), ()))
            if time.monotonic() - asked >= self._failed_create_seconds:
                known = await self._ask_failed_creates(client, name)
                self._failed[name] = (time.monotonic(), known)
            found += known
        return tuple(found)

    async def _ask_failed_creates(self, client: Client, name: str) -> tuple[FailedCreate, ...]:
        items = await self._ask_events(client, f"kind=DaemonSet,involvedObject.name={name},reason=FailedCreate")
        return tuple(sorted((views.failed_create(i) for i in items), key=lambda f: f.last_seen))

    async def pod_warnings(self, client: Client, names_of_pods: Iterable[str]) -> tuple[PodWarning, ...]:
        """The newest Warning about each of these pods; an answer is good for `failed_create_seconds`.

        Of pods that are not asked for any more nothing is kept: each has a name of its own.
        """
        wanted, known, now = sorted(set(names_of_pods)), self._warned, time.monotonic()
        old = now - self._failed_create_seconds
        self._warned = {name: found for name, found in known.items() if found[0] > old}
        for name in wanted:
            if name not in self._warned:
                items = await self._ask_events(client, f"kind=Pod,involvedObject.name={name},type=Warning")
                newest = max(map(views.pod_warning, items), key=lambda w: (w.last_seen, w.message), default=None)
                self._warned[name] = (now, newest)
        return tuple(found for name in wanted if (found := self._warned[name][1]) is not None)

    async def _ask_events(self, client: Client, about: str) -> list[Object]:
        """Events of our namespace; `about`: field selector from the involved object's kind on."""
        items: list[Object] = []
        try:
            async for page in client.pages(events(self._namespace), fields=f"involvedObject.{about}"):
                items += page["items"]
        except (ApiError, *UNREACHABLE) as error:
            # the status says less without them, and that is all
            logger.warning("events not read", extra={"about": about, "error": str(error)})
        return items

    def _prune_inventory(self, raw: Object, before: InventoryView | None) -> InventoryView:
        return views.inventory(raw, before, now=self._now())

    def _node_changed(self, change: Change[NodeView]) -> None:
        for name in self._concerned(change.old, change.new):
            self._enqueue(name)

    def _owned_changed(self, change: Change[Owned]) -> None:
        # a DaemonSet and a ConfigMap may have one name
        for name in self._owned.apply(replace(change, name=f"{(change.new or change.old).kind}/{change.name}")):  # type: ignore[union-attr]
            self._enqueue(name)
        if _held(change.old) != _held(change.new):
            self._reconsider()

    def _pod_changed(self, change: Change[PodView]) -> None:
        for name in self._pods.apply(change):
            self._enqueue(name)

    def _inventory_changed(self, change: Change[InventoryView]) -> None:
        concerned = self._inventories.apply(change)
        nodes = self._inventories_on.apply(change)
        if _offered(change.old) != _offered(
            change.new
        ):  # two objects may have come to one name or device, or away from it
            concerned |= {i.config for node in nodes for i in self.inventories_on(node)}
        if change.old is None or change.new is None or self._is_news(change.old, change.new):
            for name in concerned:
                self._enqueue(name)

    def _is_news(self, old: InventoryView, new: InventoryView) -> bool:
        """A heartbeat alone is none, unless it ends a silence: 5,000 nodes send 8 a second."""
        if (new.heartbeat_seen - old.heartbeat_seen).total_seconds() > self._heartbeat_stale:
            return True
        return replace(old, heartbeat_seen=new.heartbeat_seen, status=_timeless(old.status)) != replace(
            new, status=_timeless(new.status)
        )


def _held(owned: Owned | None) -> tuple[object, ...]:
    view = owned.daemonset if owned is not None else None
    return (owned.owner_uid, view.serves, view.terms) if owned is not None and view is not None else ()


def _offered(inventory: InventoryView | None) -> set[str]:
    if inventory is None:
        return set()
    return {r["name"] for r in inventory.status.get("resources") or () if r.get("devices")} | {
        *offered_hardware(inventory)
    }


def _timeless(status: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key != "lastHeartbeatTime"}
