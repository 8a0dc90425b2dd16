"""`kubectl devices history`: what happened to devices in the last days, also to those that are gone."""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

from device_agent.contract.codec import encode

from kubectl_devices import errors
from kubectl_devices.cluster.kinds import INVENTORIES
from kubectl_devices.commands import flags
from kubectl_devices.commands.command import Command
from kubectl_devices.model import fleet, history
from kubectl_devices.model.fleet import Inventory
from kubectl_devices.model.history import Happening, Wanted
from kubectl_devices.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", nargs="?", default="", metavar="DEVICE", help="only this device, of any node")
    parser.add_argument("--node", default="", metavar="NAME", help="only of this node")
    parser.add_argument("--resource", default="", metavar="NAME", help="only this resource, such as 'nvidia.com/*'")
    parser.add_argument("--config", default="", metavar="NAME", help="only of this DevicePluginConfig")
    parser.add_argument(
        "--since", type=flags.seconds, default=None, metavar="TIME", help="only the last 24h, 90m, 30s (default: all)"
    )
    flags.output(parser, "wide", "json", "yaml")


def run(session: Session) -> int:
    options, now = session.options, datetime.now(tz=UTC)
    inventories = _inventories(session)
    wanted = Wanted(
        device=options.device,
        node=options.node,
        config=options.config,
        resource=options.resource,
        since=now - timedelta(seconds=options.since) if options.since else None,
    )
    if options.device and not history.is_known(inventories, options.device):
        raise errors.CliError(f"no node has or had a device {options.device}; see: kubectl devices list")
    found = history.happenings(inventories, wanted)
    if not session.out.structured(options.output, [as_json(h) for h in found]):
        if found:
            session.out.table(history.history_table(found, wide=options.output == "wide", now=now))
        else:
            session.out.notes(["nothing has happened that fits"])
    session.out.notes([*fleet.from_inventories(inventories).remarks, *history.remarks(inventories)])
    return 0


def _inventories(session: Session) -> tuple[Inventory, ...]:
    """Raises errors.CliError if the user may not list them."""
    found = session.reader.items(INVENTORIES, lost="no history is shown")
    if found is None:
        raise errors.CliError(
            "the history is in the inventories alone; ask for the verb list on nodedeviceinventories.device-operator.io"
        )
    return tuple(map(fleet.read_inventory, found))


def as_json(happening: Happening) -> dict[str, Any]:
    return {"node": happening.node, "config": happening.config, **encode(happening.facts)}


COMMAND = Command(
    name="history",
    help="what happened to devices in the last days: failed, came back, withheld, gone",
    about=(
        "Lists the changes of devices in the last 7 days, the newest last. DEVICE is an id, a UUID, a PCI address or a "
        "path below /dev; a device that is gone has its id alone. --node, --resource and --config are globs."
    ),
    arguments=arguments,
    run=run,
)
