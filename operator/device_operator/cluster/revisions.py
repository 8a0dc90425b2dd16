"""The form of an accepted spec in the cluster: a ControllerRevision for each accepted generation. Pure.

The name has a hash of owner, generation and spec. A revision that somebody changed does not match its name, and is not
used. The labels match no selector of a DaemonSet, because the DaemonSet controller adopts revisions that match.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from device_agent.contract import names

from device_operator.cluster import views
from device_operator.cluster.client import Object
from device_operator.render.manifests import owner_reference
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.model import ConfigRef, Spec
from device_operator.spec.parsing import parse_spec

LABEL: Final = f"{names.GROUP}/accepted-spec"
"""Its value is the name of the DevicePluginConfig."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """`generation`: of the DevicePluginConfig when it had this spec.

    `spec`: None where the content is not valid for this version of the operator; `problem` says why.
    `intact`: the content matches the name.
    """

    name: str
    uid: str
    config: str
    owner_uid: str
    generation: int
    intact: bool
    spec: Spec | None
    problem: str = ""


def revision_name(ref: ConfigRef, *, generation: int, spec: Any) -> str:
    """At most 71 characters: a config's name has 40 at most, a generation 19 digits."""
    content = json.dumps([ref.uid, generation, spec], sort_keys=True)
    return f"{ref.name}-{generation}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def revision_body(ref: ConfigRef, *, generation: int, spec: Mapping[str, Any], namespace: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(ref, generation=generation, spec=spec),
            "namespace": namespace,
            "labels": {LABEL: ref.name, "app.kubernetes.io/managed-by": "device-operator"},
            "ownerReferences": [owner_reference(ref)],
        },
        "revision": generation,
        "data": spec,
    }


def revision(raw: Object, before: Revision | None) -> Revision:
    """`data` of an object cannot change, so a spec that was parsed is taken from `before`."""
    meta, generation = raw["metadata"], int(raw.get("revision", 0))
    config, owner_uid = meta.get("labels", {}).get(LABEL, ""), views.owner_uid(raw)
    ref, data = ConfigRef(config, owner_uid), raw.get("data")
    spec, problem = None, ""
    if before is not None and (before.uid, before.config) == (meta["uid"], config):
        spec, problem = before.spec, before.problem
    else:
        try:
            spec = parse_spec({"metadata": {"name": config}, "spec": data})
        except InvalidSpecError as error:
            problem = str(error)
    return Revision(
        name=meta["name"],
        uid=meta["uid"],
        config=config,
        owner_uid=owner_uid,
        generation=generation,
        intact=meta["name"] == revision_name(ref, generation=generation, spec=data),
        spec=spec,
        problem=problem,
    )
