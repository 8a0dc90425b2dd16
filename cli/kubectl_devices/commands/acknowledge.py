"""`kubectl devices acknowledge`: says that a failure of a device is over, and shows what the agent makes of it."""

import argparse
import time
from collections import defaultdict
from typing import Final

from kubectl_devices import errors
from kubectl_devices.cluster.kinds import INVENTORIES
from kubectl_devices.commands import flags
from kubectl_devices.commands.command import Command
from kubectl_devices.model import acknowledging, filters
from kubectl_devices.model.acknowledging import Item
from kubectl_devices.model.fleet import Inventory, read_inventory
from kubectl_devices.session import Session

_POLL_SECONDS: Final = 1.0


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.device(parser)
    parser.add_argument(
        "--since", default="", metavar="TIME", help="of the failure (default: as the inventory has it now)"
    )
    parser.add_argument(
        "--timeout", type=flags.seconds, default=30.0, metavar="TIME", help="for the answer (default: 30s)"
    )


def run(session: Session) -> int:
    options = session.options
    if not options.device:
        raise errors.UsageError("name the devices whose failures are over")
    found = tuple(map(read_inventory, session.api.items(INVENTORIES)))
    everywhere = [device for inventory in found for device in inventory.devices]
    items: defaultdict[str, list[Item]] = defaultdict(list)
    for name in options.device:
        for device in filters.one_node(everywhere, name, node=options.node, config=options.config):
            one = acknowledging.item(device, since=options.since)
            if one not in items[device.inventory]:
                items[device.inventory].append(one)
    for inventory, wanted in items.items():
        _write(session, inventory, wanted)
    taken = [_answered(session, inventory, wanted) for inventory, wanted in items.items()]  # all are printed
    return 0 if all(taken) else 1


def _write(session: Session, name: str, items: list[Item]) -> None:
    """Raises errors.ConflictError if somebody else wrote meanwhile: what they saw may be gone."""
    now = _read(session, name)
    annotations = {acknowledging.ANNOTATION: acknowledging.annotation(now, items)}
    session.api.merge(INVENTORIES, name, {"metadata": {"annotations": annotations, "resourceVersion": now.version}})


def _read(session: Session, name: str) -> Inventory:
    return read_inventory(session.api.get(INVENTORIES, name))


def _answered(session: Session, name: str, items: list[Item]) -> bool:
    """Waits for the agent's answers and prints them. Whether all items were taken."""
    deadline = time.monotonic() + session.options.timeout
    found: dict[Item, str] = {}
    while len(found) < len(items) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        found = acknowledging.answers(_read(session, name), items)
    for item in items:
        late = f"no answer yet; look later: kubectl get ndi {name} -o jsonpath='{{.status.acknowledgement}}'"
        session.out.line(f"{item.text}: {found.get(item, late)}")
    return all(acknowledging.taken(found.get(item, "")) for item in items)


COMMAND = Command(
    name="acknowledge",
    help="say that a failure of a device is over",
    about=(
        "Ends failures that only you can judge, such as an XID after a reset. The device is Healthy when its checks "
        "are good. Waits for the agent's answer; the exit status is 1 if not all were taken. See docs/health.md."
    ),
    arguments=arguments,
    run=run,
)
