"""What a container gets for the ids of one Allocate. Pure: the order of the ids does not matter.

Everything but `{position}` was rendered at scan time, so this only combines values. `kubelet/plugin.py` turns the
answer into the message. The kubelet merges the answers of all resources of a container. Of two nodes or mounts at one
container path it keeps the first (pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions).
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import lru_cache

from device_agent.contract.document import Env, Resource
from device_agent.contract.template import MissingAttributeError, Template, TemplateError, parse_template
from device_agent.contract.values import dataclass
from device_agent.runtime.errors import WrongNumber
from device_agent.select.unit import Grants, MountGrant, Unit

DEFAULT_PERMISSIONS = "rw"
"""Never empty: the kubelet would pass an empty string on, and the runtime would refuse the container."""


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device node: host path, container path, cgroup permissions (a subset of `rwm`, never empty)."""

    host_path: str
    container_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class ContainerResponse:
    """The content of a ContainerAllocateResponse (kubelet api.proto v1beta1), each field in a fixed order."""

    envs: dict[str, str] = field(default_factory=dict)
    mounts: tuple[MountGrant, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


def respond(resource: Resource, units: Sequence[tuple[str, Unit]]) -> ContainerResponse:
    """The answer for `units`: (requested id, its unit), one per id, in any order.

    A physical device counts once, however many of its replicas are requested. Devices are taken in the order of their
    ids; `{position}` counts them in that order.

    Raises:
        WrongNumber: the entry does not allow this number of ids.
    """
    size = len(units)
    name = units[0][1].resource if units else resource.name
    if problem := _size_problem(resource, name, size):
        raise WrongNumber(problem)

    by_id = {unit.id: unit for _, unit in units}
    content = _Content(resource.inject.env, size=size)
    for position, device in enumerate(sorted(by_id)):
        content.add(by_id[device].grants, position)
    return content.response()


class _Content:
    """Collects the answer, device by device. `entries`: `inject.env` of the resource; `size`: ids asked for."""

    def __init__(self, entries: Sequence[Env], *, size: int) -> None:
        self._entries = entries
        self._size = size
        self._envs: dict[str, dict[str, None]] = {}
        self._annotations: dict[str, dict[str, None]] = {}
        self._nodes: dict[str, DeviceSpec] = {}
        self._mounts: dict[str, MountGrant] = {}
        self._cdi: dict[str, None] = {}

    def add(self, grants: Grants, position: int) -> None:
        """Adds one device."""
        for index, env, value in grants.env:
            counts = self._entries[index].counts if index < len(self._entries) else ()
            if not counts or self._size in counts:
                _add(self._envs, _render(env, position), _render(value, position))
        for node in grants.nodes:
            path = _render(node.container_path, position)
            spec = DeviceSpec(_render(node.host_path, position), path, node.permissions or DEFAULT_PERMISSIONS)
            self._nodes.setdefault(path, spec)
            if node.env:
                _add(self._envs, _render(node.env, position), path)
        for mount in grants.mounts:
            path = _render(mount.container_path, position)
            self._mounts.setdefault(path, MountGrant(_render(mount.host_path, position), path, mount.read_only))
        for annotation, value in grants.annotations:
            _add(self._annotations, _render(annotation, position), _render(value, position))
        for device in grants.cdi_devices:
            self._cdi[_render(device, position)] = None

    def response(self) -> ContainerResponse:
        """The answer so far."""
        return ContainerResponse(
            envs=_joined(self._envs),
            mounts=tuple(self._mounts.values()),
            devices=tuple(self._nodes.values()),
            annotations=_joined(self._annotations),
            cdi_devices=tuple(self._cdi),
        )


def _size_problem(resource: Resource, name: str, size: int) -> str | None:
    counts, most = resource.allocation.counts, resource.sharing.max_per_container
    if counts and size not in counts:
        return f"{name}: {size} requested, a container may have {_either(sorted(set(counts)))} (allocation.counts)"
    if most and size > most:
        return f"{name}: {size} requested, a container may have at most {most} (sharing.maxPerContainer)"
    return None


def _either(numbers: Iterable[int]) -> str:
    *head, last = map(str, numbers)
    return f"{', '.join(head)} or {last}" if head else last


def _add(into: dict[str, dict[str, None]], name: str, value: str) -> None:
    into.setdefault(name, {})[value] = None


def _joined(values: dict[str, dict[str, None]]) -> dict[str, str]:
    return {name: ",".join(values[name]) for name in sorted(values)} if values else {}


def _render(text: str, position: int) -> str:
    if "{" not in text and "}" not in text:
        return text
    template = _template(text)
    if template is None:
        return text
    try:
        return template.render({}, position=position)
    except MissingAttributeError:
        return text


@lru_cache(maxsize=4096)
def _template(text: str) -> Template | None:
    try:
        return parse_template(text)
    except TemplateError:
        return None
