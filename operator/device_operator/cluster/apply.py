"""Writes rendered objects by update with resourceVersion, and finds drift without asking when nothing moved.

Not server-side apply: that never removes what somebody else added to the spec. Drift is a spec that differs from
what a dry-run update of the rendered object gives, so server defaults and webhooks are on both sides. It is asked
only when the rendered hash or the live version differ from the pair last found equal; a quiet pass costs nothing.
Foreign labels, annotations, finalizers and owners stay, and so does the mark of `kubectl rollout restart`.
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
    """The rendered `hash` was found in force at the live object's `version`."""

    hash: str
    uid: str
    version: int


class Applier:
    """Remembers, per object, what was last found equal. Lost with the process: then each is asked once."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._resources = {"DaemonSet": cache.daemonsets(namespace), "ConfigMap": cache.configmaps(namespace)}
        self._equal: dict[tuple[str, str], _Equal] = {}

    async def ensure(self, manifest: Manifest, *, owner: ConfigRef, live: Owned | None) -> bool:
        """Makes the object as rendered; True when something was written. `live`: what the cache knows, None: absent.

        Raises:
            errors.ForeignOwnerError: the name is taken by an object that `owner` does not own.
            ApiError: the server refused.
        """
        key = (manifest.kind, manifest.name)
        if live is not None and (live.deleting or self._is_equal(manifest, owner, live, self._equal.get(key))):
            return False  # one that is going is made anew when it is gone
        resource = self._resources[manifest.kind]
        if live is None:
            try:
                self._remember(manifest, await self._client.create(resource, manifest.body))
            except ApiError as error:
                if not error.already_exists:
                    raise  # else: without our label, or newer than the cache
            else:
                logger.info("created", extra={"kind": manifest.kind, "object": manifest.name})
                return True
        return await self._bring_in_line_with_retries(manifest, owner)

    async def remove(self, owned: Owned) -> None:
        """Deletes exactly this object; one that is gone or was made anew is none of ours."""
        self._equal.pop((owned.kind, owned.name), None)
        try:
            await self._client.delete(self._resources[owned.kind], owned.name, uid=owned.uid)
        except ApiError as error:
            if not (error.not_found or error.conflict):
                raise
        logger.info("deleted", extra={"kind": owned.kind, "object": owned.name})

    async def _bring_in_line_with_retries(self, manifest: Manifest, owner: ConfigRef) -> bool:
        """Somebody who writes in between, such as the DaemonSet controller its status, makes it read again."""
        for last in (False,) * (_TRIES - 1) + (True,):
            try:
                return await self._bring_in_line(self._resources[manifest.kind], manifest, owner)
            except ApiError as error:
                if last or not error.conflict:
                    raise
        raise AssertionError("unreachable")

    async def _bring_in_line(self, resource: ApiResource, manifest: Manifest, owner: ConfigRef) -> bool:
        live = await self._client.get(resource, manifest.name)
        if views.owner_uid(live) and views.owner_uid(live) != owner.uid:
            raise errors.ForeignOwnerError(
                f"{manifest.kind} {resource.namespace}/{manifest.name} still belongs to an earlier "
                "DevicePluginConfig of this name and goes with it; it is made anew then"
            )
        if not views.owner_uid(live):
            raise errors.ForeignOwnerError(
                f"{manifest.kind} {resource.namespace}/{manifest.name} belongs to {views.owner_text(live)} and is "
                f"left alone; delete or rename it, then it is made anew for {owner.name}"
            )
        wanted = wanted_from(manifest.body, live)
        if manifest.kind == "ConfigMap":
            if live.get("immutable"):
                # the API server takes no other content and no way back; the next pass makes it anew
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
            # metadata does not count in a generation
            and live.owner_uid == owner.uid
            and meta.get("labels", {}).items() <= live.labels.items()
            and meta.get("annotations", {}).items() <= live.annotations.items()
        )


def wanted_from(rendered: Object, live: Object) -> Object:
    """The live object with everything that is ours as rendered: the body of an update."""
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
    """Everything that a drift may be in."""
    meta = body["metadata"]
    return (
        meta.get("labels", {}),
        meta.get("annotations", {}),
        meta.get("ownerReferences", []),
        body.get("spec"),
        body.get("data", {}),
        body.get("binaryData", {}),
    )
