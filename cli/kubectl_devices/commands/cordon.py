"""`kubectl devices cordon` and `uncordon`: withhold devices from new pods, and offer them again."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Final

from kubectl_devices import errors
from kubectl_devices.cluster.kinds import INVENTORIES
from kubectl_devices.commands import flags
from kubectl_devices.commands.command import Command
from kubectl_devices.commands.list_devices import holders_text
from kubectl_devices.model import cordons
from kubectl_devices.model.cordons import Items, Target
from kubectl_devices.model.fleet import Inventory, read_inventory
from kubectl_devices.session import Session

_TRIES: Final = 5
"""The agent and other admins write the inventory too; each try begins with what they wrote."""


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.device(parser)
    parser.add_argument("--all", action="store_true", help="everything on the node, also devices that come later")


def cordon_arguments(parser: argparse.ArgumentParser) -> None:
    arguments(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="for others; it is shown with the device")


def run_cordon(session: Session) -> int:
    inventories, targets = cordon(session)
    held = [d for d in cordons.targeted(inventories, targets) if d.holders]
    for device in held:
        session.out.notes(
            [f"{device.id} is held by {holders_text(device.holders)}, which runs on; kubectl devices drain ends it"]
        )
    return 0


def cordon(session: Session) -> tuple[tuple[Inventory, ...], tuple[Target, ...]]:
    """Cordons what the flags name. Returns the inventories as they were, and what was cordoned."""
    options = session.options
    inventories, targets = chosen(session)
    for target in targets:
        done = change(session, target.inventory, partial(cordons.added, ids=target.ids, reason=options.reason))
        for device in target.ids:
            session.out.line(f"{options.node} {device} {'cordoned' if done else 'is cordoned already'}")
    return inventories, targets


def chosen(session: Session) -> tuple[tuple[Inventory, ...], tuple[Target, ...]]:
    """All inventories, and what the flags name in them."""
    options = session.options
    inventories = listed(session)
    targets = cordons.to_cordon(
        inventories, node=options.node, devices=options.device, everything=options.all, config=options.config
    )
    return inventories, targets


def run_uncordon(session: Session) -> int:
    options = session.options
    inventories = listed(session)
    targets = cordons.to_uncordon(
        inventories, node=options.node, devices=options.device, everything=options.all, config=options.config
    )
    for target in targets:
        change(session, target.inventory, partial(cordons.removed, ids=target.ids))
        for device in target.ids:
            session.out.line(f"{options.node} {device} uncordoned")
    if not targets:
        session.out.line(f"nothing is cordoned on {options.node}")
    return 0


def listed(session: Session) -> tuple[Inventory, ...]:
    """All inventories.

    Raises:
        errors.UsageError: neither devices nor --all were given, or both.
        errors.ForbiddenError: the user may not list them.
    """
    options = session.options
    if bool(options.device) == bool(options.all):
        raise errors.UsageError("name devices, or use --all for everything on the node")
    return tuple(map(read_inventory, session.api.items(INVENTORIES)))


def change(session: Session, inventory: str, edit: Callable[[Items], Items]) -> bool:
    """Writes the cordons of an inventory, based on what it has at that moment. False: it is so already.

    Raises:
        errors.ConflictError: others wrote at the same moment, again and again.
    """
    for attempt in range(_TRIES):
        found = read_inventory(session.api.get(INVENTORIES, inventory))
        wanted = edit(found.cordoned)
        if wanted == found.cordoned:
            return False
        body = {"metadata": {"resourceVersion": found.version}, "spec": {"cordoned": [dict(item) for item in wanted]}}
        try:
            session.api.merge(INVENTORIES, inventory, body)
        except errors.ConflictError:
            if attempt == _TRIES - 1:
                raise
        else:
            return True
    raise AssertionError


CORDON = Command(
    name="cordon",
    help="withhold devices from new pods; pods that hold them run on",
    about="The agent of the node takes the cordon within 10 seconds. It is of the hardware, under all its names.",
    arguments=cordon_arguments,
    run=run_cordon,
)
UNCORDON = Command(
    name="uncordon",
    help="offer cordoned devices to pods again",
    about="Takes cordons of inventories away. A cordon in spec.cordon of a DevicePluginConfig is not changed.",
    arguments=arguments,
    run=run_uncordon,
)
