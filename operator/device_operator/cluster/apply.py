"""Writes rendered objects by update with resourceVersion, and repairs drift. A pass without changes needs no request.

Server-side apply is not used: it never removes what others added to the spec. To find drift, a dry-run update with the
rendered object is sent, and its result is compared with the live object. So both sides have the server's defaults and
the changes of webhooks. Without a new rendered hash or a new live version, no dry run is needed: the two were equal
before. Labels, annotations, finalizers and owners of others stay. The annotation of `kubectl rollout restart` stays
too.
"""

import copy
import logging
from dataclasses import dataclass
from typing import Any, Final

from device_operator.cluster import cache, views
from device_operator.cluster.client import ApiError, ApiResource, Client, Object
from device_operator.cluster.views import Owned
from device_operator.render.manifests import Manifest
from device_operator.runtime import errors
from device_operator.spec.model import ConfigRef

logger = logging.getLogger(__name__)

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class _Equal:
    """At `version`, the live object was equal to the rendered object with `hash`."""

    hash: str
    uid: str
    version: int


class Applier:
    """Remembers when each object was last equal to what was rendered. After a restart it compares each object once."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._resources = {"DaemonSet": cache.daemonsets(namespace), "ConfigMap": cache.configmaps(namespace)}
        self._equal: dict[tuple[str, str], _Equal] = {}

    async def ensure(self, manifest: Manifest, *, owner: ConfigRef, live: Owned | None) -> bool:
        """Creates or updates the object; True when something was written. `live`: from the cache; None: absent.

        Raises:
            errors.ForeignOwnerError: the name is taken by an object that `owner` does not own.
            ApiError: the server refused.
        """
        key = (manifest.kind, manifest.name)
        if live is not None and (live.deleting or self._is_equal(manifest, owner, live, self._equal.get(key))):
            return False  # an object that is being deleted is created again once it is gone
        resource = self._resources[manifest.kind]
        if live is None:
            try:
                self._remember(manifest, await self._client.create(resource, manifest.body))
            except ApiError as error:
                if not error.already_exists:
                    raise  # otherwise it exists without our label, or is newer than the cache
            else:
                logger.info("created", extra={"kind": manifest.kind, "object": manifest.name})
                return True
        return await self._write(resource, manifest, owner)

    async def remove(self, owned: Owned) -> None:
        """Deletes exactly this object, by its uid."""
        self._equal.pop((owned.kind, owned.name), None)
        await self._client.delete(self._resources[owned.kind], owned.name, uid=owned.uid)
        logger.info("deleted", extra={"kind": owned.kind, "object": owned.name})

    async def _write(self, resource: ApiResource, manifest: Manifest, owner: ConfigRef) -> bool:
        """Reads the object again after a conflict, such as a status write of the DaemonSet controller."""
        for _ in range(_TRIES - 1):
            try:
                return await self._write_once(resource, manifest, owner)
            except ApiError as error:
                if not error.conflict:
                    raise
        return await self._write_once(resource, manifest, owner)

    async def _write_once(self, resource: ApiResource, manifest: Manifest, owner: ConfigRef) -> bool:
        live = await self._client.get(resource, manifest.name)
        if views.owner_uid(live) and views.owner_uid(live) != owner.uid:
            raise errors.ForeignOwnerError(
                f"{manifest.kind} {resource.namespace}/{manifest.name} still belongs to an earlier "
                "DevicePluginConfig of this name; wait: Kubernetes deletes it, then it is created again"
            )
        if not views.owner_uid(live):
            raise errors.ForeignOwnerError(
                f"{manifest.kind} {resource.namespace}/{manifest.name} belongs to {views.owner_text(live)}, so it is "
                f"not changed; delete or rename it, then the operator creates it for {owner.name}"
            )
        wanted = wanted_from(manifest.body, live)
        if manifest.kind == "ConfigMap":
            if live.get("immutable"):
                # an immutable ConfigMap cannot be changed; the next pass creates it again
                await self._client.delete(resource, manifest.name, uid=live["metadata"]["uid"])
                logger.info("deleted", extra={"kind": manifest.kind, "object": manifest.name, "reason": "immutable"})
                return True
            if _content(wanted) == _content(live):
                self._remember(manifest, live)
                return False
        else:
            expected = await self._client.update(resource, wanted, dry_run=True)
            if _content(expected) == _content(live):
                self._remember(manifest, live)
                return False
        self._remember(manifest, await self._client.update(resource, wanted))
        logger.info("updated", extra={"kind": manifest.kind, "object": manifest.name})
        return True

    def _remember(self, manifest: Manifest, live: Object) -> None:
        meta = live["metadata"]
        version = int(meta["resourceVersion"]) if manifest.kind == "ConfigMap" else int(meta["generation"])
        self._equal[(manifest.kind, manifest.name)] = _Equal(manifest.hash, meta["uid"], version)

    @staticmethod
    def _is_equal(manifest: Manifest, owner: ConfigRef, live: Owned, equal: _Equal | None) -> bool:
        meta = manifest.body["metadata"]
        return (
            equal is not None
            and equal.hash == manifest.hash
            and equal.uid == live.uid
            and live.version <= equal.version  # the cache may still be behind our own write
            # changes of metadata do not change the generation
            and live.owner_uid == owner.uid
            and meta.get("labels", {}).items() <= live.labels.items()
            and meta.get("annotations", {}).items() <= live.annotations.items()
        )


def wanted_from(rendered: Object, live: Object) -> Object:
    """The body of an update: the live object, with everything that is rendered replaced."""
    wanted = copy.deepcopy(rendered)
    meta = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    for field in ("labels", "annotations"):
        merged = {**meta.get(field, {}), **wanted["metadata"].get(field, {})}
        if merged:
            meta[field] = merged
    ours = wanted["metadata"].get("ownerReferences", [])
    uids = {o["uid"] for o in ours}
    meta["ownerReferences"] = [*ours, *(o for o in meta.get("ownerReferences", []) if o["uid"] not in uids)]
    wanted["metadata"] = meta
    restarted = _template_annotations(live).get(RESTARTED_AT)
    if restarted is not None:
        wanted["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {})[RESTARTED_AT] = restarted
    return wanted


def _template_annotations(body: Object) -> dict[str, str]:
    annotations: dict[str, str] = body.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    return annotations


def _content(body: Object) -> tuple[Any, ...]:
    """The parts of an object that are compared."""
    meta = body["metadata"]
    return (
        meta.get("labels", {}),
        meta.get("annotations", {}),
        meta.get("ownerReferences", []),
        body.get("spec"),
        body.get("data", {}),
        body.get("binaryData", {}),
    )
