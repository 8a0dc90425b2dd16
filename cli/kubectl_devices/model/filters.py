"""Which devices a command is about. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kubectl_devices import errors
from kubectl_devices.model.fleet import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Empty or None: all. Texts are globs. `held`: by a pod. `offered`: to new pods."""

    node: str = ""
    config: str = ""
    resource: str = ""
    health: str = ""
    offered: bool | None = None
    held: bool | None = None

    def takes(self, device: Device) -> bool:
        return (
            fits(self.node, device.node)
            and fits(self.config, device.config)
            and fits(self.resource, device.resource)
            and (not self.health or device.facts.health.lower() == self.health.lower())
            and self.offered in (None, device.facts.offered)
            and self.held in (None, bool(device.holders))
        )


def named(devices: Iterable[Device], name: str) -> tuple[Device, ...]:
    """Those that `name` means: an id, one of the device's nodes below /dev, or an attribute that identifies it, such as
    its UUID or PCI address.
    """
    found = tuple(devices)
    by_id = tuple(d for d in found if d.id == name)
    return by_id or tuple(d for d in found if name in d.facts.nodes or name in _identities(d))


def one_node(devices: Iterable[Device], name: str, *, node: str, config: str = "") -> tuple[Device, ...]:
    """The device `name` of a node under all its resource names, and of one configuration if one is given.

    Raises:
        errors.CliError: there is none; the message lists what there is.
    """
    there = tuple(d for d in devices if d.node == node and config in ("", d.config))
    found = named(there, name)
    if found:
        return found
    whose = f"{node} of {config}" if config else node
    ids = sorted({d.id for d in there})
    if not ids:
        raise errors.CliError(f"no inventory lists a device of node {whose}; see: kubectl devices list")
    shown = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
    raise errors.CliError(f"node {whose} has no device {name}; it has: {shown}")


def fits(pattern: str, text: str) -> bool:
    """Whether a glob matches; an empty one matches all."""
    return not pattern or fnmatchcase(text, pattern)


def _identities(device: Device) -> tuple[str, ...]:
    attributes = device.facts.attributes
    return tuple(attributes[key] for key in ("uuid", "pci.address", "usb.serial", "path") if key in attributes)
