"""Finds mistakes in a document whose shape is right. Operator and agent refuse such a document with these texts.

Every problem is one line: the field's path, what is wrong, how to correct it.
"""

import re
from collections.abc import Iterable, Iterator

from device_agent.contract import attributes, globs, names, paths
from device_agent.contract.document import (
    DeviceEntry,
    DeviceNode,
    Document,
    Env,
    Mount,
    NvmlKind,
    OwnNodes,
    Resource,
    SimulatedSource,
)
from device_agent.contract.template import POSITION, Template, TemplateError, parse_template

MAX_REPLICAS = 10_000
MAX_INTERVAL_SECONDS = 3600
MAX_FAILURES = 100
MAX_RECOVERIES = 1000
MAX_GRACE_SECONDS = 86_400
MAX_XID = 999
MAX_NUMA_NODES = 64
UNIT_NODE = "node"
"""`unit: node`: all selected devices of a node together are one device."""


def problems(document: Document, *, path: str = "spec.resources") -> tuple[str, ...]:
    """All mistakes of the document, in its order; empty if an agent can serve it."""
    found: list[str] = []
    first: dict[str, int] = {}
    for index, resource in enumerate(document.resources):
        where = f"{path}[{index}]"
        if resource.name in first:
            found.append(
                f"{where}.name: {resource.name} is already the name of {path}[{first[resource.name]}]; "
                "put its sources into that entry's devices, or choose another name"
            )
        first.setdefault(resource.name, index)
        found += _resource(resource, where)
    return (*found, *_cordon(document))


def sources_of(resource: Resource) -> frozenset[str]:
    """The kinds of source that the entry uses."""
    return frozenset(entry.kind for entry in resource.devices)


def templates_of(resource: Resource) -> Iterator[tuple[str, str]]:
    """(field path below the resource, text) of every value that may have placeholders."""
    yield "name", resource.name
    for i, node in enumerate(resource.inject.device_nodes):
        yield f"inject.deviceNodes[{i}].hostPath", node.host_path
        yield f"inject.deviceNodes[{i}].containerPath", node.container_path
        yield f"inject.deviceNodes[{i}].env", node.env
    for i, mount in enumerate(resource.inject.mounts):
        yield f"inject.mounts[{i}].hostPath", mount.host_path
        yield f"inject.mounts[{i}].containerPath", mount.container_path
    for i, env in enumerate(resource.inject.env):
        yield f"inject.env[{i}].name", env.name
        yield f"inject.env[{i}].value", env.value
    for i, annotation in enumerate(resource.inject.annotations):
        yield f"inject.annotations[{i}].name", annotation.name
        yield f"inject.annotations[{i}].value", annotation.value
    for i, device in enumerate(resource.inject.cdi_devices):
        yield f"inject.cdiDevices[{i}]", device


def attribute_names(resource: Resource) -> frozenset[str]:
    """Every attribute that the entry mentions. Only these sysfs files of a device are read."""
    used = {m.attribute for m in resource.exclude}
    used |= {m.attribute for entry in resource.devices for m in entry.include}
    used |= {p.match.attribute for p in resource.sharing.per_device}
    used |= {m.attribute for m in resource.health.unhealthy_when}
    if resource.unit not in ("", UNIT_NODE):
        used.add(resource.unit)
    for _, text in templates_of(resource):
        used |= set(parse_template(text).names)
    return frozenset(used - {POSITION})


def _cordon(document: Document) -> Iterator[str]:
    sources = frozenset((*attributes.SOURCES, attributes.MIG))  # a pool may serve a part of the resources
    for i, rule in enumerate(document.cordon):
        at = f"spec.cordon[{i}].match"
        if problem := attributes.attribute_problem(rule.match.attribute, sources=sources):
            yield f"{at}.attribute: {problem}"
        if not rule.match.values:
            yield f"{at}.values: is empty, so nothing matches; give at least one value, or remove the entry"
        for value in filter(globs.unclosed, rule.match.values):
            yield f"{at}.values: {value!r:.80} has a '[' without ']'; close it, or write '[[]' for the character itself"


def _resource(resource: Resource, where: str) -> Iterator[str]:
    if not resource.devices:
        yield f"{where}.devices: is empty, so nothing can be served; name a source such as files: {{paths: [/dev/kvm]}}"
    unclear = False
    for i, entry in enumerate(resource.devices):
        given = [k for k in attributes.SOURCES if getattr(entry, k) is not None]
        if len(given) != 1:
            unclear = True
            yield (
                f"{where}.devices[{i}]: exactly one source is needed, there is {' and '.join(given) or 'none'}; "
                f"choose one of {', '.join(attributes.SOURCES)}, and add entries for more"
            )
    if unclear:
        return  # without a clear source, the attributes are not known
    yield from _sources(resource, where)
    if resource.devices:  # without a source there are no attributes to check
        yield from _matches(resource, where)
        yield from _attributes(resource, where, frozenset().union(*map(_having, resource.devices)))
    yield from globs.problems(resource, where)
    yield from _name(resource.name, f"{where}.name")
    yield from _sharing(resource, where)
    yield from _inject(resource, where)
    yield from _health(resource, f"{where}.health")


def _sources(resource: Resource, where: str) -> Iterator[str]:
    for i, entry in enumerate(resource.devices):
        at = f"{where}.devices[{i}]"
        if entry.files is not None:
            if not entry.files.paths:
                yield f"{at}.files.paths: is empty; name at least one path below /dev"
            for path in entry.files.paths:
                if problem := paths.problem(path, below="/dev/"):
                    yield f"{at}.files.paths: {problem}"
        if entry.sysfs is not None and not re.fullmatch(r"[A-Za-z0-9_-]+", entry.sysfs.subsystem):
            yield (
                f"{at}.sysfs.subsystem: {entry.sysfs.subsystem!r} must be the name of one directory in "
                "/sys/class or /sys/bus, such as block or fpga_region"
            )
        if entry.pci is not None:
            for text in (*entry.pci.ids, *entry.pci.classes, *entry.pci.addresses):
                if text != text.lower():
                    yield f"{at}.pci: {text!r} must be in lower case: {text.lower()!r}"
            for text in entry.pci.ids:
                if ":" not in text and text != "*":
                    yield f"{at}.pci.ids: {text!r} must be vendor:device as lspci -n prints it: 15b3:1017, 15b3:*"
        if entry.simulated is not None:
            yield from _simulated(entry.simulated, f"{at}.simulated")
    simulated = [i for i, entry in enumerate(resource.devices) if entry.simulated is not None]
    count, replicas = sum(e.simulated.count for e in resource.devices if e.simulated), resource.sharing.replicas
    ids = count * replicas
    if ids > names.MAX_IDS:
        yield (
            f"{where}.devices[{simulated[0]}].simulated.count: {count:,} devices x {replicas:,} replicas = "
            f"{ids:,} ids, a node can offer at most {names.MAX_IDS:,} of one resource; lower count or replicas"
        )


def _simulated(source: SimulatedSource, at: str) -> Iterator[str]:
    if source.count < 0:
        yield f"{at}.count: {source.count} must be 0 or more"
    if not 0 <= source.numa_nodes <= MAX_NUMA_NODES:
        yield f"{at}.numaNodes: {source.numa_nodes} must be from 0 to {MAX_NUMA_NODES}; 0 means no NUMA"
    for index in source.unhealthy:
        if not 0 <= index < source.count:
            yield f"{at}.unhealthy: there is no index {index}, they go from 0 to count - 1"
            return


def _having(entry: DeviceEntry) -> frozenset[str]:
    """The sources whose attributes the entry's devices have, with MIG for MIG devices."""
    mig = entry.nvml is not None and entry.nvml.kind is NvmlKind.MIG
    return frozenset({entry.kind, attributes.MIG} if mig else {entry.kind})


def _matches(resource: Resource, where: str) -> Iterator[str]:
    for field, match in globs.matches_of(resource):
        if not match.values:
            yield f"{where}.{field}.values: is empty, so nothing matches; give at least one value, or remove the entry"


def _attributes(resource: Resource, where: str, sources: frozenset[str]) -> Iterator[str]:
    def check(name: str, at: str, also: Iterable[str] = ()) -> Iterator[str]:
        problem = attributes.attribute_problem(name, sources=sources, also=also)
        if problem:
            yield f"{at}: {problem}"

    for i, entry in enumerate(resource.devices):
        for j, match in enumerate(entry.include):
            at = f"{where}.devices[{i}].include[{j}].attribute"
            if problem := attributes.attribute_problem(match.attribute, sources=_having(entry)):
                yield f"{at}: {problem}"
    for i, match in enumerate(resource.exclude):
        yield from check(match.attribute, f"{where}.exclude[{i}].attribute")
    for i, per in enumerate(resource.sharing.per_device):
        yield from check(per.match.attribute, f"{where}.sharing.perDevice[{i}].match.attribute")
    for i, match in enumerate(resource.health.unhealthy_when):
        yield from check(match.attribute, f"{where}.health.unhealthyWhen[{i}].attribute")
    if resource.unit:
        yield from check(resource.unit, f"{where}.unit", also=[UNIT_NODE])
    for field, text in templates_of(resource):
        try:
            template = parse_template(text)
        except TemplateError as error:
            yield f"{where}.{field}: {error}"
            continue
        # {position} differs by container, but a resource name is the same for the whole node
        also = [] if field == "name" else [POSITION]
        for name in template.names:
            yield from check(name, f"{where}.{field}", also)


def _name(text: str, at: str) -> Iterator[str]:
    template = _parsed(text)
    if template is None:
        return
    domain = template.prefix.partition("/")
    if template.names and not domain[1]:
        yield f"{at}: placeholders may stand only after the slash, as in example.com/{{name}}"
        return
    sample = "x".join(template.parts[::2])
    if problem := names.resource_name_problem(sample):
        yield f"{at}: {text!r} is no resource name: {problem}"


def _sharing(resource: Resource, where: str) -> Iterator[str]:
    sharing, allocation = resource.sharing, resource.allocation
    everything = [("sharing.replicas", sharing.replicas)]
    everything += [(f"sharing.perDevice[{i}].replicas", p.replicas) for i, p in enumerate(sharing.per_device)]
    for field, replicas in everything:
        if not 1 <= replicas <= MAX_REPLICAS:
            yield f"{where}.{field}: {replicas} must be from 1 to {MAX_REPLICAS}; 1 means not shared"
    for field, limit in (("maxDevices", resource.max_devices), ("sharing.maxPerContainer", sharing.max_per_container)):
        if limit < 0:
            yield f"{where}.{field}: {limit} must be 1 or more; omit it for no limit"
    for count in sorted(set(allocation.counts)):
        if allocation.counts.count(count) > 1:
            yield f"{where}.allocation.counts: {count} is given twice; keep one"
        if count < 1:
            yield f"{where}.allocation.counts: {count} must be 1 or more"
        elif sharing.max_per_container and count > sharing.max_per_container:
            yield (
                f"{where}.allocation.counts: {count} is more than sharing.maxPerContainer "
                f"{sharing.max_per_container}, so no container could ask for it; change one of the two"
            )


def _inject(resource: Resource, where: str) -> Iterator[str]:
    inject = resource.inject
    for i, glob in enumerate(resource.needs.own_nodes if resource.needs else ()):
        yield from _glob_below_dev(glob, f"{where}.needs.ownNodes[{i}]")
    for i, node in enumerate(inject.device_nodes):
        yield from _device_node(node, resource, f"{where}.inject.deviceNodes[{i}]")
    if inject.own_nodes is OwnNodes.LISTED and not any(n.own for n in inject.device_nodes):
        yield (
            f"{where}.inject.ownNodes: Listed gives only the own nodes that deviceNodes selects, and no entry "
            "there has own; add one, or use All"
        )
    if inject.own_nodes is OwnNodes.NONE:
        for i, node in enumerate(inject.device_nodes):
            if node.own:
                yield (
                    f"{where}.inject.deviceNodes[{i}].own: ownNodes None gives no own nodes, so {node.own!r} "
                    "selects nothing; use Listed, or remove the entry"
                )
    for i, mount in enumerate(inject.mounts):
        yield from _mount(mount, f"{where}.inject.mounts[{i}]")
    yield from _env(inject.env, f"{where}.inject.env")
    for i, name in enumerate(inject.cdi_devices):
        template = _parsed(name)
        if template and not ("=" in template.prefix and names.CDI_NAME.fullmatch("0".join(template.parts[::2]))):
            yield f"{where}.inject.cdiDevices[{i}]: {name!r} must read vendor.com/class=name; {names.CDI_RULE}"


def _glob_below_dev(glob: str, at: str) -> Iterator[str]:
    if not glob or glob.startswith("/") or not paths.is_plain(glob):
        yield f"{at}: {glob!r} is a glob below /dev without '..': write dri/renderD*, not /dev/dri/renderD*"


def _device_node(node: DeviceNode, resource: Resource, at: str) -> Iterator[str]:
    if bool(node.own) == bool(node.host_path):
        yield f"{at}: give either own (the device's own nodes, a glob below /dev) or hostPath (a companion), not both"
        return
    if not node.permissions or not re.fullmatch("r?w?m?", node.permissions):
        yield f"{at}.permissions: {node.permissions!r} must be one or more of r, w, m in this order, such as rw"
    if node.own:
        yield from _glob_below_dev(node.own, f"{at}.own")
    host = _parsed(node.host_path)
    if host and POSITION in host.names:
        yield f"{at}.hostPath: {_no_position(node.host_path)}"
    if node.host_path and host and (problem := paths.problem(node.host_path, below="/dev/")):
        yield f"{at}.hostPath: {problem}"
    target = _parsed(node.container_path)
    if node.container_path and target:
        several = node.own or (host and host.names)
        if problem := paths.problem(node.container_path, below="/"):
            yield f"{at}.containerPath: {problem}"
        elif several and not target.names and resource.sharing.max_per_container != 1:
            yield (
                f"{at}.containerPath: several devices in a container would all be {node.container_path!r}; "
                "set sharing.maxPerContainer: 1, or a placeholder such as {position} in the path"
            )
    env = _parsed(node.env)
    if node.env and env and (wrong := names.variable_problem("0".join(env.parts[::2]))):
        yield f"{at}.env: {node.env!r}: {wrong}"


def _mount(mount: Mount, at: str) -> Iterator[str]:
    for field, text in (("hostPath", mount.host_path), ("containerPath", mount.container_path)):
        template = _parsed(text)
        if template and (problem := paths.problem(text, below="/")):
            yield f"{at}.{field}: {problem}"
        elif field == "hostPath" and template and POSITION in template.names:
            yield f"{at}.{field}: {_no_position(text)}"
        elif template and template.names and template.prefix == "/":
            yield (
                f"{at}.{field}: {text!r} needs a literal directory before its first placeholder: "
                "write it as /opt/{name}"
            )


def _env(entries: tuple[Env, ...], at: str) -> Iterator[str]:
    for i, env in enumerate(entries):
        template = _parsed(env.name)
        if template and (problem := names.variable_problem("0".join(template.parts[::2]))):
            yield f"{at}[{i}].name: {env.name!r}: {problem}"
        if any(count < 1 for count in env.counts):
            least = min(env.counts)
            yield f"{at}[{i}].counts: {least} must be 1 or more: counts are sizes of requests; omit it for all"
        for j, earlier in enumerate(entries[:i]):
            both = not env.counts or not earlier.counts or set(env.counts) & set(earlier.counts)
            if env.name == earlier.name and both:
                yield (
                    f"{at}[{i}].name: {env.name} is already set by {at}[{j}]; "
                    "join the values in one entry, or keep them apart by counts"
                )
                break


def _health(resource: Resource, at: str) -> Iterator[str]:
    health = resource.health
    for field, value, least, most in (
        ("intervalSeconds", health.interval_seconds, 1, MAX_INTERVAL_SECONDS),
        ("failureThreshold", health.failure_threshold, 1, MAX_FAILURES),
        ("recoveryThreshold", health.recovery_threshold, 1, MAX_RECOVERIES),
        ("removalGraceSeconds", health.removal_grace_seconds, 0, MAX_GRACE_SECONDS),
        *((f"ignoreXids[{i}]", xid, 1, MAX_XID) for i, xid in enumerate(health.ignore_xids)),
        *((f"xids[{i}].xid", rule.xid, 1, MAX_XID) for i, rule in enumerate(health.xids)),
    ):
        if not least <= value <= most:
            yield f"{at}.{field}: {value} must be from {least} to {most}; omit the field for its default"
    if (health.ignore_xids or health.xids) and attributes.NVML not in sources_of(resource):
        yield (
            f"{at}: ignoreXids and xids are about errors of the NVIDIA driver, and no source here is nvml; "
            "remove them, or use unhealthyWhen"
        )
    seen: set[int] = set()
    for i, rule in enumerate(health.xids):
        if rule.xid in seen:
            yield f"{at}.xids[{i}].xid: {rule.xid} is given twice; keep one"
        elif rule.xid in health.ignore_xids:
            yield f"{at}.xids[{i}].xid: {rule.xid} is in ignoreXids too; keep it in one of the two"
        seen.add(rule.xid)


def _no_position(path: str) -> str:
    return (
        f"{path!r}: {{position}} counts within one container and is not allowed in a path of the node; use an attribute"
    )


def _parsed(text: str) -> Template | None:
    try:
        return parse_template(text)
    except TemplateError:
        return None  # _attributes reports it
