"""The accepted specs of objects, kept in the cluster: written once, read by every pass, removed when nothing uses them.

They outlive a rejected edit, a restart of the operator and a deleted DaemonSet. Reading costs no request: the cache
watches the revisions.
"""

import logging
from collections.abc import Collection
from typing import Final

from device_operator.cluster import views
from device_operator.cluster.cache import ClusterCache, controllerrevisions
from device_operator.cluster.client import ApiError, Client, Object
from device_operator.cluster.revisions import Revision, revision, revision_body
from device_operator.runtime.errors import ForeignOwnerError
from device_operator.spec.model import ConfigRef, Pool, Spec

logger = logging.getLogger(__name__)

HISTORY: Final = 3
"""Accepted specs that are kept of an object: the one in force, and two to return to."""


class AcceptedSpecs:
    """A spec counts for other objects from the moment of `keep`, before the API server has answered."""

    def __init__(self, client: Client, cache: ClusterCache, *, namespace: str) -> None:
        self._client = client
        self._cache = cache
        self._namespace = namespace
        self._resource = controllerrevisions(namespace)
        self._on_the_way: dict[str, Revision] = {}

    def latest(self, ref: ConfigRef) -> Revision | None:
        """The revision of the highest generation, readable or not. None: nothing was accepted, or it is lost."""
        return max(self._intact(ref), key=lambda r: r.generation, default=None)

    def earlier(self, ref: ConfigRef) -> dict[int, Spec]:
        """The readable specs by generation, without the latest."""
        latest = self.latest(ref)
        return {r.generation: r.spec for r in self._intact(ref) if r.spec is not None and r is not latest}

    def way_back(self, ref: ConfigRef, *, generation: int) -> str:
        """The name of the spec to return to from `generation`: the newest that differs from it; '' if there is none."""
        found = sorted((r for r in self._intact(ref) if r.spec is not None), key=lambda r: r.generation, reverse=True)
        present = next((r.spec for r in found if r.generation == generation), None)
        return next((r.name for r in found if r.spec != present), "")

    def held_pools(self, ref: ConfigRef) -> tuple[Pool, ...]:
        """Pools of the accepted spec, and what the DaemonSets run.

        The two differ while the object is paused, while a pool waits for its turn, and after the accepted spec is lost.
        """
        latest = self.latest(ref)
        wanted = latest.spec.pools if latest is not None and latest.spec is not None else ()
        running = (view.runs for view in self._cache.daemonsets_of(ref))
        return (*wanted, *(pool for pool in running if pool is not None))

    async def keep(self, ref: ConfigRef, *, generation: int, spec: Object) -> Revision:
        """Writes the spec of an accepted generation.

        Raises:
            ForeignOwnerError: the name is taken by an object that `ref` does not own.
            ApiError: the server refused. Also what a request raises without an answer.
        """
        body = revision_body(ref, generation=generation, spec=spec, namespace=self._namespace)
        self._on_the_way[ref.uid] = revision({**body, "metadata": {**body["metadata"], "uid": ""}}, None)
        try:
            kept = self._cache.revisions.learn(await self._written(ref, body))
        finally:
            del self._on_the_way[ref.uid]
        logger.info("accepted spec kept", extra={"config": ref.name, "generation": generation, "object": kept.name})
        return kept

    async def remove_old(self, ref: ConfigRef, *, used: Collection[int]) -> None:
        """Keeps the latest `HISTORY` different specs and those of the generations in `used`, which pools still have.

        Deletes nothing while the latest cannot be read: another version of the operator may be able to read it.
        """
        found = self._cache.revisions_of(ref)
        intact = sorted((r for r in found if r.intact), key=lambda r: r.generation, reverse=True)
        if not intact or intact[0].spec is None:
            return
        kept, history = {r.name for r in intact if r.generation in used}, list[Spec]()
        for one in intact:
            if one.spec is not None and one.spec not in history and len(history) < HISTORY:
                history.append(one.spec)
                kept.add(one.name)
        for old in found:
            if old.name not in kept:
                await self._delete(old.name, uid=old.uid)

    def _intact(self, ref: ConfigRef) -> tuple[Revision, ...]:
        found = tuple(r for r in self._cache.revisions_of(ref) if r.intact)
        coming = self._on_the_way.get(ref.uid)
        return found if coming is None else (*found, coming)

    async def _written(self, ref: ConfigRef, body: Object) -> Object:
        try:
            return await self._client.create(self._resource, body)
        except ApiError as error:
            if not error.already_exists:
                raise
        name = body["metadata"]["name"]
        there = await self._client.get(self._resource, name)
        if views.owner_uid(there) != ref.uid:
            raise ForeignOwnerError(
                f"ControllerRevision {self._namespace}/{name} belongs to {views.owner_text(there)}, so it is "
                f"not changed; delete or rename it, then the operator can store the accepted spec of {ref.name}"
            )
        known, wanted = revision(there, None), body["metadata"]["labels"]
        if known.intact and wanted.items() <= there["metadata"].get("labels", {}).items():
            return there
        await self._delete(name, uid=there["metadata"]["uid"])
        return await self._client.create(self._resource, body)

    async def _delete(self, name: str, *, uid: str) -> None:
        await self._client.delete(self._resource, name, uid=uid)
        logger.info("deleted", extra={"kind": "ControllerRevision", "object": name})
