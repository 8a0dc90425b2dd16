"""What `acknowledge` writes into the annotation of an inventory, and what the agent's answer says. Pure.

docs/health.md describes annotation and answers: items `<device>=<since>`, separated by commas; the agent answers each.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from device_agent.contract import names
from device_agent.contract.reasons import DeviceHealth

from kubectl_devices import errors
from kubectl_devices.model.fleet import Device, Inventory

ANNOTATION: Final = f"{names.GROUP}/acknowledge"


@dataclass(frozen=True, slots=True)
class Item:
    device: str
    since: str

    @property
    def text(self) -> str:
        return f"{self.device}={self.since}"


def item(device: Device, *, since: str) -> Item:
    """`since`: as the admin has seen it, or '' for the device's present one.

    Raises:
        errors.CliError: the device has nothing to acknowledge.
    """
    if device.facts.health is not DeviceHealth.UNHEALTHY:
        raise errors.CliError(f"{device.id} of {device.node} is {device.facts.health}: there is nothing to acknowledge")
    if not (since or device.facts.since):
        raise errors.CliError(f"the inventory does not say since when {device.id} is Unhealthy; give it with --since")
    return Item(device.id, since or device.facts.since)


def annotation(inventory: Inventory, items: Iterable[Item]) -> str:
    """The annotation's new text. Earlier items of devices that are Unhealthy stay: the agent may not have read them."""
    new = {i.device: i.text for i in items}
    failing = {d.id for d in inventory.devices if d.facts.health is DeviceHealth.UNHEALTHY}
    earlier = [text.strip() for text in inventory.annotations.get(ANNOTATION, "").split(",")]
    kept = [text for text in earlier if (device := text.rpartition("=")[0].strip()) in failing and device not in new]
    return ",".join([*kept, *new.values()])


def answers(inventory: Inventory, items: Iterable[Item]) -> dict[Item, str]:
    """The agent's answer to each item that has one."""
    told = inventory.status.acknowledgement.split("; ") if inventory.status else []
    found: dict[Item, str] = {}
    for wanted in items:
        start = f"{wanted.text}: "
        for n, part in enumerate(told):
            if part.startswith(start):
                found[wanted] = "; ".join([part, *_rest(told[n + 1 :])]).removeprefix(start)
    return found


def taken(answer: str) -> bool:
    return answer.startswith("taken at ")


def _rest(parts: Iterable[str]) -> Iterable[str]:
    """What belongs to the same answer: the next one begins with an item."""
    for part in parts:
        if "=" in part.partition(": ")[0]:
            return
        yield part
