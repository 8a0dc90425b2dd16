"""`kubectl devices who`: which pods hold a device, and which devices a pod holds."""

import argparse
from typing import Any

from device_agent.contract.codec import encode

from kubectl_devices import errors
from kubectl_devices.cluster.kinds import PODS
from kubectl_devices.commands import flags
from kubectl_devices.commands.command import Command
from kubectl_devices.model import holders
from kubectl_devices.model.fleet import Fleet
from kubectl_devices.model.holders import Holding
from kubectl_devices.model.table import table
from kubectl_devices.session import Session

_POD_PREFIXES = ("pod/", "pods/", "po/")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", metavar="DEVICE|pod/NAME", help="default: every device that is held")
    parser.add_argument("--node", default="", metavar="NAME", help="only devices of this node")
    flags.output(parser, "json", "yaml", "name")


def run(session: Session) -> int:
    fleet = session.fleet()
    names = session.options.name
    found: list[Holding] = []
    notes: list[str] = []
    for name in names:
        if prefix := next((p for p in _POD_PREFIXES if name.startswith(p)), ""):
            found += _of_pod(session, fleet, name.removeprefix(prefix), notes)
        else:
            found += _of_device(session, fleet, name, notes)
    if not names:
        node = session.options.node
        found += holders.holdings(d for d in fleet.devices if node in ("", d.node))
    _print(session, found, empty="no pod holds a device" if not names else "")
    session.out.notes([*notes, *fleet.remarks])
    return 0


def _of_pod(session: Session, fleet: Fleet, name: str, notes: list[str]) -> tuple[Holding, ...]:
    """Raises errors.CliError if there is no such pod."""
    namespace = session.connection.namespace
    found = holders.of_pod(fleet.devices, namespace, name)
    if found:
        return found
    before = len(session.reader.gaps)
    pod = session.reader.get(PODS, name, namespace=namespace, lost=f"why {namespace}/{name} holds no device")
    if pod is not None:
        why = holders.why_nothing(pod, fleet.devices)
        notes.append(f"{namespace}/{name} holds no device: {why}")
    elif len(session.reader.gaps) == before:
        raise errors.CliError(f"there is no pod {name} in namespace {namespace}; name another one with -n")
    return ()


def _of_device(session: Session, fleet: Fleet, name: str, notes: list[str]) -> tuple[Holding, ...]:
    devices = holders.of_device(fleet.devices, name, node=session.options.node)
    if not devices:
        where = f"node {session.options.node}" if session.options.node else "no node"
        verb = "does not have" if session.options.node else "has"
        raise errors.CliError(f"{where} {verb} a device {name}; see: kubectl devices list")
    for device in devices:
        if not device.holders:
            notes.append(f"no pod holds {device.id} of {device.node} as {device.resource}; it is {device.facts.health}")
        if device.facts.kept_for:
            notes.append(f"{device.id} of {device.node}: the kubelet keeps it for {device.facts.kept_for}")
        if device.facts.stale_grant:
            notes.append(f"{device.id} of {device.node}: {device.facts.stale_grant}")
    return holders.holdings(devices)


def _print(session: Session, found: list[Holding], *, empty: str) -> None:
    out = session.out
    if session.options.output == "name":
        for pod in dict.fromkeys(f"{h.holder.namespace}/{h.holder.pod}" for h in found):
            out.line(pod)
    elif not out.structured(session.options.output, [_as_json(h) for h in found]):
        if found:
            rows = (
                (h.device.node, h.device.resource, h.device.id, h.holder.namespace, h.holder.pod, h.holder.container)
                for h in found
            )
            out.table(table("NODE RESOURCE DEVICE NAMESPACE POD CONTAINER", rows))
        elif empty:
            out.notes([empty])


def _as_json(holding: Holding) -> dict[str, Any]:
    device = holding.device
    return {
        "node": device.node,
        "config": device.config,
        "resource": device.resource,
        "device": device.id,
        **encode(holding.holder),
    }


COMMAND = Command(
    name="who",
    help="which pods hold a device, which devices a pod holds",
    about="Shows holders: of a device on any node, of a pod (pod/NAME, namespace by -n), or all of them.",
    arguments=arguments,
    run=run,
)
