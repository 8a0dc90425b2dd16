"""Deletes objects that the accepted spec no longer needs, and inventories without a node after a grace."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from device_operator.cluster.apply import Applier
from device_operator.cluster.cache import INVENTORIES, ClusterCache
from device_operator.cluster.client import ApiError, Client
from device_operator.cluster.views import Owned
from device_operator.render.manifests import Manifest
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import Assignment
from device_operator.status.emptiness import lost_nodes

logger = logging.getLogger(__name__)

_HEARTBEAT: Final = 600.0
"""Seconds: agents write their inventory at least this often."""


class Cleaner:
    """`grace`: seconds that an inventory without node or pool stays. `clock`: monotonic seconds; `now`: aware UTC."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        applier: Applier,
        *,
        grace: float,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._cache = cache
        self._applier = applier
        self._grace = grace
        self._clock = clock
        self._now = now
        self._orphans: dict[str, dict[str, float]] = {}

    async def clean(self, ref: ConfigRef, manifests: Iterable[Manifest], assigned: Assignment) -> ApiError | None:
        """`manifests`, `assigned`: of the spec in force. Returns a refusal, so that the status is still written."""
        if not self._cache.complete:
            return None
        try:
            await self._clean_objects(ref, manifests, assigned)
            await self._clean_inventories(ref, assigned)
        except ApiError as error:
            logger.warning("not cleaned", extra={"config": ref.name, "error": str(error)})
            return error
        return None

    def wait(self, ref: ConfigRef) -> float:
        """Seconds until the next inventory may be deleted; infinite if there is none to delete."""
        since = self._orphans.get(ref.uid, {}).values()
        return min((at + self._grace - self._clock() for at in since), default=float("inf"))

    def forget(self, uid: str) -> None:
        """Call it when an object is gone or paused. The grace then begins again."""
        self._orphans.pop(uid, None)

    async def _clean_objects(self, ref: ConfigRef, manifests: Iterable[Manifest], assigned: Assignment) -> None:
        mine = [o for o in self._cache.owned(ref.name) if o.owner_uid == ref.uid and not o.deleting]
        kept = {(m.kind, m.name) for m in manifests}
        rolled = {o.pool for o in mine if _rolled_out(o)}
        for owned in sorted(mine, key=lambda o: o.kind, reverse=True):  # DaemonSets before their ConfigMaps
            if (owned.kind, owned.name) in kept:
                continue
            # agents that are not updated yet read the ConfigMap of another contract version
            if owned.kind == "ConfigMap" and owned.pool in assigned.nodes and owned.pool not in rolled:
                continue
            await self._applier.remove(owned)

    async def _clean_inventories(self, ref: ConfigRef, assigned: Assignment) -> None:
        """Deletes inventories whose node was gone or in no pool for the whole grace, and has no agent pod.

        An inventory is kept if its node still exists, and pods held devices there by its last report. Without it the
        status could not say NodesLost.

        After a restart of this process the start of the grace is unknown. An agent writes every ten minutes, so the
        node had no agent for the age of its inventory minus ten minutes.
        """
        now, clock = self._now(), self._clock()
        kept = {node for nodes in assigned.nodes.values() for node in nodes}
        kept |= {pod.node for pod in self._cache.pods_of(ref.name) if pod.node and not pod.deleting}
        mine = [i for i in self._cache.inventories_of(ref.name) if i.owner_uid == ref.uid]
        before = self._orphans.get(ref.uid, {})
        orphans = [i for i in mine if i.node not in kept]
        if orphans:
            lost = {inventory.name for inventory in lost_nodes(self._cache.nodes, orphans, assigned)}
            orphans = [i for i in orphans if i.name not in lost]
        since: dict[str, float] = {}
        for inventory in orphans:
            without = max((now - inventory.heartbeat_seen).total_seconds() - _HEARTBEAT, 0.0)
            since[inventory.name] = min(before.get(inventory.name, clock), clock - without)
        self._orphans[ref.uid] = since
        for inventory in orphans:
            if clock - since[inventory.name] < self._grace:
                continue
            await self._client.delete(INVENTORIES, inventory.name, uid=inventory.uid)
            logger.info("inventory deleted", extra={"config": ref.name, "node": inventory.node})


def _rolled_out(owned: Owned) -> bool:
    """Whether all pods of the DaemonSet have its present template."""
    view = owned.daemonset
    return view is not None and view.observed_generation >= view.generation and view.updated >= view.desired
