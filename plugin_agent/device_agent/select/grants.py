"""What a unit adds to a container: the entry's `inject`, rendered with the unit's devices. Pure.

The results are templates that hold only `{position}`, which is known when a container asks. Literal braces, also those
in values from hardware, stay doubled for that second rendering.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, TypeVar

from device_agent.contract import names
from device_agent.contract.attributes import several_files
from device_agent.contract.document import DeviceNode, Inject, Mount, OwnNodes
from device_agent.contract.reasons import DeviceReason, ExclusionReason
from device_agent.contract.template import POSITION, MissingAttributeError, Template, parse_template
from device_agent.runtime.errors import AgentError
from device_agent.select.found import DeviceNodes, FoundDevice, Problem
from device_agent.select.kernel_names import matcher
from device_agent.select.unit import Grants, MountGrant, NodeGrant

T = TypeVar("T")


OWN_PERMISSIONS: Final = "rw"
"""Permissions of own nodes that no entry of deviceNodes selects."""

_ABSENT = "does not exist on the node: correct the path, load the driver that makes it, or set optional: true"
_SAFE = re.compile(r"[A-Za-z0-9._:@+-]+")


class UnusableDeviceError(AgentError):
    """A device that the entry cannot offer: `reason` is CamelCase, the message one line."""

    def __init__(self, reason: ExclusionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def render(inject: Inject, members: Sequence[FoundDevice], *, dev: DeviceNodes) -> tuple[Grants, Problem | None]:
    """The grants of a unit, and the problem that makes it unhealthy: (reason, message), or None.

    Values are rendered for each member, and equal values are kept once. A member that lacks an attribute is skipped if
    another member has it. `dev` is asked about companions and mounts only.

    Raises:
        UnusableDeviceError: all members lack an attribute, or a value is not allowed in a path.
    """
    nodes: dict[str, NodeGrant] = {}
    problem = _own_nodes(inject, members, nodes)
    problem = _companions(inject, members, nodes, dev.exists) or problem
    mounts: dict[MountGrant, None] = {}
    problem = _mounts(inject, members, mounts, dev.missing) or problem
    env = [
        (i, name, value)
        for i, spec in enumerate(inject.env)
        for name, value in each(
            members,
            partial(_variable, spec.name, spec.value),
            where=f"inject.env[{i}] ({spec.name})",
            optional=spec.optional,
        )
    ]
    annotations = [
        pair
        for i, spec in enumerate(inject.annotations)
        for pair in each(members, partial(_pair, spec.name, spec.value), where=f"inject.annotations[{i}] ({spec.name})")
    ]
    cdi: dict[str, None] = {}
    for i, name in enumerate(inject.cdi_devices):
        cdi |= dict.fromkeys(each(members, partial(_cdi_device, name), where=f"inject.cdiDevices[{i}]"))
    grants = Grants(
        nodes=tuple(nodes.values()),
        mounts=tuple(mounts),
        env=tuple(env),
        annotations=tuple(annotations),
        cdi_devices=tuple(cdi),
    )
    return grants, problem


def lacking(patterns: Sequence[str], nodes: Sequence[str]) -> Problem | None:
    """Why a device with these own nodes is not offered, if one of the globs (`needs.ownNodes`) matches none of them."""
    for pattern in patterns:
        fits = matcher((pattern,))
        if not any(fits(node.removeprefix("/dev/")) for node in nodes):
            have = ", ".join(nodes) or "none"
            return (
                DeviceReason.DEVICE_NODE_MISSING,
                f"needs.ownNodes: no own node matches {pattern}; there is {have}. Has its driver made the nodes?",
            )
    return None


def each(
    members: Sequence[FoundDevice],
    make: Callable[[Mapping[str, str]], T],
    *,
    where: str,
    optional: bool = False,
) -> tuple[T, ...]:
    """The results of `make` for each member's attributes; equal results once.

    Raises:
        UnusableDeviceError: all members lack an attribute. If `optional`, the result is empty instead.
    """
    made: dict[T, None] = {}
    missing = ""
    for member in members:
        try:
            made[make(member.attributes)] = None
        except MissingAttributeError as error:
            missing = missing or error.args[0]
    if missing and not made and not optional:
        raise UnusableDeviceError(
            ExclusionReason.MISSING_ATTRIBUTE,
            f"{where} needs {missing}, which the device does not have{several_files(missing)}",
        )
    return tuple(made)


def text(template: str, attributes: Mapping[str, str]) -> str:
    """`template` with everything rendered but `{position}`; still a template.

    Raises:
        MissingAttributeError: the device lacks an attribute.
    """
    if "{" not in template and "}" not in template:
        return template
    parsed = _parsed(template)
    out = [escaped(parsed.prefix)]
    for name, literal in zip(parsed.parts[1::2], parsed.parts[2::2], strict=True):
        if name == POSITION:
            out.append("{position}")
        elif name in attributes:
            out.append(escaped(attributes[name]))
        else:
            raise MissingAttributeError(name)
        out.append(escaped(literal))
    return "".join(out)


def path(template: str, attributes: Mapping[str, str], *, below: str) -> str:
    """As `text`, for a path: each value must be the name of one file, and the result stays below `below`.

    Raises:
        MissingAttributeError: the device lacks an attribute.
        UnusableDeviceError: a value has a slash, a blank or `..`: values from hardware are not trusted.
    """
    parsed = _parsed(template)
    for name in parsed.names:
        value = attributes.get(name, "")
        if name != POSITION and value and (value in (".", "..") or not _SAFE.fullmatch(value)):
            raise UnusableDeviceError(
                ExclusionReason.UNSAFE_VALUE,
                f"{name} is {value!r}, which is not a safe file name for the path {template}",
            )
    rendered = text(template, attributes)
    segments = rendered.removeprefix(below).split("/")
    if not rendered.startswith(below) or any(segment in ("", ".", "..") for segment in segments):
        raise UnusableDeviceError(ExclusionReason.UNSAFE_VALUE, f"{template} gives {rendered!r}, which leaves {below}")
    return rendered


def escaped(value: str) -> str:
    """Literal text as a template.

    Raises:
        UnusableDeviceError: a name from the file system is not UTF-8, so no message to the kubelet can hold it.
    """
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise UnusableDeviceError(
            ExclusionReason.UNSAFE_VALUE,
            f"{value.removeprefix('/dev/')!r} is not UTF-8, and the kubelet accepts only UTF-8",
        )
    return value.replace("{", "{{").replace("}", "}}")


@lru_cache(maxsize=4096)
def _parsed(template: str) -> Template:
    return parse_template(template)


def _directory(template: str) -> str:
    """The directory in a path's literal beginning, with its final slash."""
    prefix = escaped(_parsed(template).prefix)
    return prefix[: prefix.rfind("/") + 1]


def _pair(name: str, value: str, attributes: Mapping[str, str]) -> tuple[str, str]:
    return text(name, attributes), text(value, attributes)


def _variable(name: str, value: str, attributes: Mapping[str, str]) -> tuple[str, str]:
    return _variable_name(name, attributes), text(value, attributes)


def _variable_name(name: str, attributes: Mapping[str, str]) -> str:
    rendered = text(name, attributes)
    if rendered and names.variable_problem(rendered):
        raise UnusableDeviceError(
            ExclusionReason.UNSAFE_VALUE, f"{name} gives {rendered!r}, which cannot be the name of a variable"
        )
    return rendered


def _cdi_device(name: str, attributes: Mapping[str, str]) -> str:
    rendered = text(name, attributes)
    if not names.CDI_NAME.fullmatch(rendered.replace("{position}", "0")):
        raise UnusableDeviceError(
            ExclusionReason.UNSAFE_VALUE, f"{name} gives {rendered!r}, which is not the name of a CDI device"
        )
    return rendered


def _mounts(
    inject: Inject, members: Sequence[FoundDevice], into: dict[MountGrant, None], missing: Callable[[str], bool]
) -> Problem | None:
    """Of a host path that is missing, the container runtime would make an empty directory, and the pod would run."""
    problem = None
    for i, mount in enumerate(inject.mounts):
        for grant in each(members, partial(_mount, mount), where=f"inject.mounts[{i}]", optional=mount.optional):
            host_path = _parsed(grant.host_path)
            if POSITION in host_path.names or not missing(host_path.render({})):
                into[grant] = None
            elif not mount.optional:
                text = f"inject.mounts[{i}]: {grant.host_path} {_ABSENT}"
                problem = problem or (DeviceReason.COMPANION_MISSING, text)
    return problem


def _mount(mount: Mount, attributes: Mapping[str, str]) -> MountGrant:
    return MountGrant(
        host_path=path(mount.host_path, attributes, below=_directory(mount.host_path)),
        container_path=path(mount.container_path, attributes, below=_directory(mount.container_path)),
        read_only=mount.read_only,
    )


def _own_nodes(inject: Inject, members: Sequence[FoundDevice], into: dict[str, NodeGrant]) -> Problem | None:
    specs = [(i, spec) for i, spec in enumerate(inject.device_nodes) if spec.own]
    met: set[int] = set()
    owners: dict[str, Mapping[str, str]] = {}
    for member in members:
        for node in member.nodes:
            owners.setdefault(node, member.attributes)
    for node in sorted(owners):
        listed = False
        for i, spec in specs:
            if not matcher((spec.own,))(node.removeprefix("/dev/")):
                continue
            met.add(i)
            try:
                _add(into, _own_grant(spec, node, owners[node]))
                listed = True
            except MissingAttributeError as error:
                if not spec.optional:
                    where = f"inject.deviceNodes[{i}] (own {spec.own})"
                    lacks = error.args[0]
                    message = f"{where} needs {lacks}, which the device does not have{several_files(lacks)}"
                    raise UnusableDeviceError(ExclusionReason.MISSING_ATTRIBUTE, message) from error
        if not listed and inject.own_nodes is OwnNodes.ALL:
            _add(into, NodeGrant(escaped(node), escaped(node), OWN_PERMISSIONS))
    for i, spec in specs:
        if i not in met and not spec.optional:
            have = ", ".join(sorted(owners)) or "none"
            return (
                DeviceReason.DEVICE_NODE_MISSING,
                f"inject.deviceNodes[{i}]: no own node matches {spec.own}; there is {have}",
            )
    return None


def _own_grant(spec: DeviceNode, node: str, attributes: Mapping[str, str]) -> NodeGrant:
    host = escaped(node)
    inside = spec.container_path
    return NodeGrant(
        host_path=host,
        container_path=path(inside, attributes, below=_directory(inside)) if inside else host,
        permissions=spec.permissions,
        env=_variable_name(spec.env, attributes),
    )


def _companions(
    inject: Inject, members: Sequence[FoundDevice], into: dict[str, NodeGrant], exists: Callable[[str], bool]
) -> Problem | None:
    problem = None
    for i, spec in enumerate(inject.device_nodes):
        if not spec.host_path:
            continue
        grants = each(
            members, partial(_companion, spec), where=f"inject.deviceNodes[{i}].hostPath", optional=spec.optional
        )
        for grant in grants:
            known = exists(_parsed(grant.host_path).render({}))
            if not known and not spec.optional:
                problem = problem or (DeviceReason.COMPANION_MISSING, f"{grant.host_path} {_ABSENT}")
            if known or not spec.optional:
                _add(into, grant)
    return problem


def _companion(spec: DeviceNode, attributes: Mapping[str, str]) -> NodeGrant:
    host = path(spec.host_path, attributes, below="/dev/")
    inside = spec.container_path
    return NodeGrant(
        host_path=host,
        container_path=path(inside, attributes, below=_directory(inside)) if inside else host,
        permissions=spec.permissions,
        env=_variable_name(spec.env, attributes),
    )


def _add(into: dict[str, NodeGrant], grant: NodeGrant) -> None:
    earlier = into.setdefault(grant.container_path, grant)
    if earlier.host_path != grant.host_path:
        raise UnusableDeviceError(
            ExclusionReason.CONTAINER_PATH_CONFLICT,
            f"{earlier.host_path} and {grant.host_path} would both be {grant.container_path} in the container: "
            "narrow the glob, or choose another containerPath",
        )
