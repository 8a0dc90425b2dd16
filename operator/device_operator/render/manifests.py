"""An accepted spec as manifests: a ConfigMap and a DaemonSet per pool. Equal input gives equal bytes.

The ConfigMap holds the document and changes with the configuration. The pod template of the DaemonSet holds only the
name of the ConfigMap, so an edit restarts agents only when their pods must change. The rights of an agent on its node
are in templates/daemonset.yaml.j2; a test pins them.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import jinja2
import yaml
from device_agent.contract import names
from device_agent.contract.codec import encode
from device_agent.contract.document import CONTRACT_VERSION, dump

from device_operator.spec.agent_settings import (
    AgentSettings,
    ComputeResources,
    LogLevel,
    PullPolicy,
    PullSecret,
    merged,
)
from device_operator.spec.driver_access import CONTAINER, PRIVILEGED_SELINUX_TYPE, pod_needs
from device_operator.spec.model import ConfigRef, Pool, Spec
from device_operator.spec.scheduling import OS_LABEL, Expression, Operator, Term

ANNOTATION_CONFIG_HASH: Final = f"{names.GROUP}/config-hash"
"""On ConfigMap and DaemonSet, not on pods: SHA-256 of the document. Agents report it as observedConfigHash."""
ANNOTATION_TEMPLATE: Final = f"{names.GROUP}/template-hash"
"""On DaemonSet and pod template: SHA-256 of the pod template without this annotation."""
ANNOTATION_GENERATION: Final = f"{names.GROUP}/generation"
"""On ConfigMap and DaemonSet: the generation of the DevicePluginConfig whose spec they have."""
ANNOTATION_CHANGED: Final = f"{names.GROUP}/changed-in"
"""On both: the generation that last changed configuration or pod template."""
ANNOTATION_HAD_DEVICES: Final = f"{names.GROUP}/had-devices"
"""On both: JSON list of the entries that had devices in the pool before it got this generation."""
ANNOTATION_SERVES: Final = f"{names.GROUP}/serves"
"""On the DaemonSet: JSON list of the entries that its agents serve."""
_LABELS: Final = {
    "app.kubernetes.io/component": "agent",
    "app.kubernetes.io/managed-by": "device-operator",
    "app.kubernetes.io/name": "device-agent",
    "app.kubernetes.io/part-of": "device-operator",
}
POD_RESOURCES_DIR: Final = "/var/lib/kubelet/pod-resources"
"""In the agent's container; on the node it is below the kubelet's root directory."""

DEFAULT_RESOURCES: Final = ComputeResources(requests={"cpu": "10m", "memory": "64Mi"}, limits={"memory": "256Mi"})
"""The agent takes 45 MiB with 8 devices; the limit is for 20,000 ids. No cpu limit: throttled probes would fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """Settings of the chart for all agents. `spec.agent` and the `agent` of a pool override them."""

    namespace: str
    agent_image: str
    service_account: str = "device-agent"
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    selinux_type: str = "container_device_plugin_t"

    def agent(self) -> AgentSettings:
        """The settings that `spec.agent` overrides."""
        return AgentSettings(
            image=self.agent_image,
            image_pull_policy=PullPolicy(self.image_pull_policy),
            image_pull_secrets=tuple(PullSecret(name) for name in self.image_pull_secrets),
            resources=DEFAULT_RESOURCES,
            env=(),
            priority_class_name="system-node-critical",
            log_level=LogLevel.INFO,
            kubelet_root_dir="/var/lib/kubelet",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`body`: the object, JSON values only. `hash`: SHA-256 of the body."""

    pool: str
    kind: str
    name: str
    body: dict[str, Any]
    config_hash: str
    template_hash: str
    hash: str


def render(ref: ConfigRef, spec: Spec, settings: RenderSettings) -> tuple[Manifest, ...]:
    """For each pool in order: its ConfigMap, then its DaemonSet.

    Takes some milliseconds per pool: callers keep the result of a generation.
    """
    return tuple(manifest for pool in spec.pools for manifest in _pool(ref, spec, pool, settings))


def annotated(manifest: Manifest, annotations: Mapping[str, str]) -> Manifest:
    """The manifest with more annotations on the object itself, not on its pods."""
    meta = {**manifest.body["metadata"]}
    meta["annotations"] = {**meta.get("annotations", {}), **annotations}
    hash_of_all = _hash([manifest.hash, dict(annotations)])
    return replace(manifest, body={**manifest.body, "metadata": meta}, hash=hash_of_all)


def owner_reference(ref: ConfigRef) -> dict[str, Any]:
    """The owner reference: the garbage collector deletes the object with its DevicePluginConfig."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "DevicePluginConfig",
        "name": ref.name,
        "uid": ref.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def dump_yaml(manifests: Iterable[Manifest]) -> str:
    """One YAML document each, byte-stable."""
    return "".join(
        "---\n" + yaml.dump(m.body, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=120) for m in manifests
    )


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as block scalars, so that people can read the document in the ConfigMap."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


def _pool(ref: ConfigRef, spec: Spec, pool: Pool, settings: RenderSettings) -> Iterable[Manifest]:
    values = _values(ref, spec, pool, settings)
    for kind, name in (("ConfigMap", values["config_map"]), ("DaemonSet", values["daemon_set"])):
        body = _fill(kind, values)
        template_hash = ""
        if kind == "DaemonSet":
            template = body["spec"]["template"]
            template_hash = _hash(template)
            for metadata in (body["metadata"], template["metadata"]):
                metadata["annotations"][ANNOTATION_TEMPLATE] = template_hash
        yield Manifest(
            pool=pool.name,
            kind=kind,
            name=name,
            body=body,
            config_hash=values["config_hash"],
            template_hash=template_hash,
            hash=_hash(body),
        )


def _values(ref: ConfigRef, spec: Spec, pool: Pool, settings: RenderSettings) -> dict[str, Any]:
    """The variables of the templates."""
    served = spec.document(pool)
    document = dump(served)
    agent = merged(settings.agent(), pool.agent)
    needs = pod_needs(agent, served)
    daemon_set = names.pool_object_name(ref.name, pool.name)
    selector = {names.LABEL_CONFIG: ref.name, names.LABEL_POOL: pool.name}
    return {
        "agent": agent,
        "annotation_config_hash": ANNOTATION_CONFIG_HASH,
        "annotation_serves": ANNOTATION_SERVES,
        "config_hash": hashlib.sha256(document).hexdigest(),
        "config_map": f"{daemon_set}-v{CONTRACT_VERSION}",
        "container": CONTAINER,
        "daemon_set": daemon_set,
        "document": document.decode(),
        "labels": {**_LABELS, **selector},
        "names": names,
        "needs": needs,
        "owners": [owner_reference(ref)],
        "pod_resources_dir": POD_RESOURCES_DIR,
        "pool": pool,
        "pull_secrets": encode(agent.image_pull_secrets),
        "ref": ref,
        "resources": encode(agent.resources),
        "selector": selector,
        "selinux_type": PRIVILEGED_SELINUX_TYPE if needs.privileged else settings.selinux_type,
        "settings": settings,
        "spec": spec,
        "terms": _terms(pool),
        "tolerations": [_without_empty(encode(t)) for t in pool.effective_tolerations],
    }


def _terms(pool: Pool) -> list[Any]:
    """Selector and terms as node affinity, with Linux in each term. `placement.matches` has the same rule."""
    fixed = (
        Expression(OS_LABEL, Operator.IN, ("linux",)),
        *(Expression(k, Operator.IN, (v,)) for k, v in sorted(pool.node_selector.items()) if k != OS_LABEL),
    )
    terms = pool.node_selector_terms or (Term(),)
    return [_without_empty(encode(Term((*fixed, *term.match_expressions), term.match_fields))) for term in terms]


def _without_empty(value: Any) -> Any:
    """Leaves out empty lists and strings, as the API server does."""
    if isinstance(value, Mapping):
        return {k: _without_empty(v) for k, v in value.items() if v not in ("", [], ())}
    if isinstance(value, list):
        return [_without_empty(v) for v in value]
    return value


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _fill(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    text = _environment().get_template(f"{kind.lower()}.yaml.j2").render(values)
    body = yaml.load(text, Loader=_LOADER)  # noqa: S506 -- a safe loader, the C one where there is one
    if not isinstance(body, dict):
        raise TypeError(f"the template of {kind} is not an object")
    return body


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _quoted(value: Any) -> str:
    """A value as JSON, with every character escaped that YAML does not take. Such JSON is YAML."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@functools.cache
def _environment() -> jinja2.Environment:
    # Autoescaping is for HTML. Here every value goes through `quoted`.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("device_operator.render"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701
    )
    environment.filters["quoted"] = _quoted
    return environment
