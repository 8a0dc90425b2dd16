"""`kubectl devices list`: every device of every node, with health, offer and holder."""

import argparse
from collections.abc import Iterable
from typing import Any

from device_agent.contract.codec import encode
from device_agent.contract.inventory import InventoryHolder

from kubectl_devices.commands import flags
from kubectl_devices.commands.command import Command
from kubectl_devices.model.filters import Filter
from kubectl_devices.model.fleet import Device
from kubectl_devices.model.table import Table, table
from kubectl_devices.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="?", default="", metavar="NODE", help="only this node")
    parser.add_argument("--resource", default="", metavar="NAME", help="only this resource, such as 'nvidia.com/*'")
    parser.add_argument("--config", default="", metavar="NAME", help="only of this DevicePluginConfig")
    parser.add_argument("--health", choices=("Healthy", "Unhealthy", "Unknown"), default="", metavar="WORD")
    offered = parser.add_mutually_exclusive_group()
    offered.add_argument(
        "--offered", action="store_const", const=True, dest="offered", help="only what new pods may get"
    )
    offered.add_argument("--withheld", action="store_const", const=False, dest="offered", help="only what they may not")
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--held", action="store_const", const=True, dest="held", help="only what a pod holds")
    held.add_argument("--free", action="store_const", const=False, dest="held", help="only what no pod holds")
    flags.output(parser, "wide", "json", "yaml", "name")


def run(session: Session) -> int:
    options = session.options
    wanted = Filter(
        node=options.node,
        config=options.config,
        resource=options.resource,
        health=options.health,
        offered=options.offered,
        held=options.held,
    )
    fleet = session.fleet()
    devices = tuple(d for d in fleet.devices if wanted.takes(d))
    if options.output == "name":
        for device in devices:
            session.out.line(f"{device.node} {device.id}")
    elif not session.out.structured(options.output, [as_json(d) for d in devices]):
        if devices:
            session.out.table(devices_table(devices, wide=options.output == "wide"))
        else:
            session.out.notes(
                ["no device fits" if fleet.devices else "no device is reported; try: kubectl devices check"]
            )
    session.out.notes(fleet.remarks)
    return 0


def devices_table(devices: Iterable[Device], *, wide: bool) -> Table:
    headings = "NODE RESOURCE DEVICE HEALTH OFFERED HOLDER"
    if not wide:
        return table(headings, map(_row, devices))
    rows = (
        (
            *_row(d),
            d.config,
            "" if d.facts.numa_node is None else str(d.facts.numa_node),
            ",".join(d.facts.nodes),
            d.facts.since,
            d.facts.reason,
            d.facts.message,
        )
        for d in devices
    )
    return table(f"{headings} CONFIG NUMA NODES SINCE REASON MESSAGE", rows)


def as_json(device: Device) -> dict[str, Any]:
    return {"node": device.node, "config": device.config, **encode(device.facts)}


def _row(device: Device) -> tuple[str, ...]:
    return (device.node, device.resource, device.id, device.facts.health, device.offer, holders_text(device.holders))


def holders_text(holders: Iterable[InventoryHolder]) -> str:
    """namespace/pod of each, once; the containers are in the JSON."""
    return ",".join(dict.fromkeys(f"{h.namespace}/{h.pod}" for h in holders))


COMMAND = Command(
    name="list",
    help="all devices: node, resource, device, health, offered, holder",
    about=(
        "Lists devices. OFFERED is Yes, or why new pods do not get the device: Cordoned, HeldAs, Draining, or No if it "
        "is Unhealthy. NODE and the values of --resource and --config are globs."
    ),
    arguments=arguments,
    run=run,
)
