"""Warnings about an accepted configuration: sentences for the message of Accepted. Pure.

Two resources may set one environment variable to different values. A container that asks for both gets only one of
them: the kubelet merges the answers, keeps the first value of a name and only logs the other
(pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions). No configuration can prevent that. This module
warns before it happens; `serving` reports the containers that are affected.

A list beside a preset replaces the list of the preset. So an addition can remove the line that hands the device over,
and the pod's program fails when it starts.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from device_agent.contract.check import templates_of
from device_agent.contract.document import Document, NvmlKind, OwnNodes, Resource
from device_agent.contract.template import parse_template

from device_operator.spec.agent_settings import AgentSettings, DeviceMetrics, NodeFeatures
from device_operator.spec.model import Pool, Spec
from device_operator.spec.wording import name_some

_TELLS_APART: Final = frozenset({"uuid", "name", "index", "minor", "path", "pci.address", "gi", "ci"})
"""Attributes that identify the GPU to a runtime, or to a program in the container."""
_CONTROL: Final = "/dev/nvidiactl"
"""The driver's library opens this node first, before the nodes of GPUs."""


@dataclass(frozen=True, slots=True)
class EnvClash:
    """An environment variable that several resources of a pool set to different values.

    `values`: name of the entry -> its value, or None if it differs between devices.
    """

    name: str
    values: Mapping[str, str | None]

    def between(self, entries: Iterable[str]) -> bool:
        """Whether a container loses a value when it holds one resource of each of `entries`; entries may repeat."""
        values = [self.values[entry] for entry in entries if entry in self.values]
        return len(values) > 1 and (None in values or len(set(values)) > 1)


def env_clashes(document: Document) -> tuple[EnvClash, ...]:
    """Sorted by variable. An entry with placeholders in its name makes several resources: it can clash with itself."""
    setters: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    for resource in document.resources:
        for name, value in _env(resource):
            same = setters[name].setdefault(resource.name, value) == value
            setters[name][resource.name] = value if same else None
    found = []
    for name, values in sorted(setters.items()):
        clash = EnvClash(name, values)
        if clash.between(e for e in values for _ in range(2 if parse_template(e).names else 1)):
            found.append(clash)
    return tuple(found)


def nvml_entries(document: Document) -> frozenset[str]:
    """Names of the entries whose devices the NVIDIA driver reports."""
    return frozenset(r.name for r in document.resources if any(entry.nvml is not None for entry in r.devices))


def caveats(spec: Spec) -> tuple[str, ...]:
    """One sentence for each caveat. Pools with the same caveat share a sentence."""
    said: dict[str, list[str]] = {}
    documents = [(pool, spec.document(pool)) for pool in spec.pools]
    useful = {setting for pool, document in documents if nvml_entries(document) for setting in _nvidia(pool.agent)}
    for pool, document in documents:
        for text in (*_of_pool(pool, document), *_without_effect(pool.agent, useful)):
            said.setdefault(text, []).append(pool.name)
    return tuple(f"pool{'s' * (len(pools) > 1)} {name_some(pools)}: {text}" for text, pools in said.items())


def serves_mig(document: Document) -> bool:
    entries = (entry for resource in document.resources for entry in resource.devices)
    return any(entry.nvml is not None and entry.nvml.kind is NvmlKind.MIG for entry in entries)


def _of_pool(pool: Pool, document: Document) -> Iterator[str]:
    if nvml_entries(document):
        access = pool.agent.driver_access
        if access is None:
            yield (
                "agent.driverAccess is not set, so the agents find the NVIDIA driver only on nodes whose default "
                "container runtime provides it; for other nodes set its runtimeClass, cdiDevice or driverRoot"
            )
        elif access.driver_root is not None:
            yield (
                "the agents run privileged, because agent.driverAccess.driverRoot is set: only a privileged container "
                "may open the driver's device nodes; to avoid it, set runtimeClass instead"
            )
        elif access.sys_admin(mig=serves_mig(document)):
            yield (
                "the agents have the capability SYS_ADMIN, because the NVIDIA runtime shows MIG devices only with it; "
                "to avoid it, set agent.driverAccess.cdiDevice"
            )
    for resource in document.resources:
        if text := _not_handed_over(resource):
            yield (
                f"{resource.name}: {text}; use a preset; "
                "a list beside a preset replaces its list, so repeat the preset's lines there"
            )
    for clash in env_clashes(document):
        yield (
            f"{name_some(clash.values)} {'set' if len(clash.values) > 1 else 'sets'} {clash.name} to different values: "
            "a container that asks for more than one of these resources gets only one of the values; request them in "
            "separate containers, or pass the devices in another way, such as a preset that ends in -cdi or -nodes"
        )


def _nvidia(agent: AgentSettings) -> Iterator[tuple[str, object]]:
    """The settings in `agent` that only matter for NVIDIA devices: name and value."""
    if agent.driver_access is not None:
        yield "agent.driverAccess", agent.driver_access
    if agent.device_metrics not in (None, DeviceMetrics.NONE):
        yield "agent.deviceMetrics", agent.device_metrics
    if agent.node_features not in (None, NodeFeatures.NONE):
        yield "agent.nodeFeatures", agent.node_features


def _without_effect(agent: AgentSettings, useful: Collection[tuple[str, object]]) -> Iterator[str]:
    """NVIDIA settings that have no effect in this pool. `useful`: settings that a pool with NVIDIA devices uses."""
    idle = [name for name, value in _nvidia(agent) if (name, value) not in useful]
    if idle:
        yield (
            f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect, "
            "because the pool serves no nvml devices"
        )


def _not_handed_over(resource: Resource) -> str:
    """Why a container cannot use the GPUs that it is given; empty if it can."""
    if all(entry.nvml is None for entry in resource.devices):
        return ""
    told = {name for field, text in templates_of(resource) if field != "name" for name in parse_template(text).names}
    if told & _TELLS_APART:
        return ""
    if resource.inject.own_nodes is OwnNodes.NONE:
        return "containers get no device, because ownNodes is None and nothing in inject names the device"
    if not any(node.host_path == _CONTROL for node in resource.inject.device_nodes):
        return f"containers get device nodes without {_CONTROL}, so the driver's library cannot use them"
    return ""


def _env(resource: Resource) -> Iterator[tuple[str, str | None]]:
    for env in resource.inject.env:
        yield env.name, None if parse_template(env.value).names else env.value
    for node in resource.inject.device_nodes:
        if node.env:
            yield node.env, None
