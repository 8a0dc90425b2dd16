"""`kubectl devices check`: is the installation sound, and if not, what is the cause?"""

import argparse
import dataclasses
import time
from typing import Final

from device_agent.contract import names
from device_operator.spec.wording import count

from kubectl_devices import errors
from kubectl_devices.cluster import kinds
from kubectl_devices.cluster.api import Object
from kubectl_devices.cluster.kinds import Kind
from kubectl_devices.cluster.reading import Reader
from kubectl_devices.commands import flags
from kubectl_devices.commands.command import Command
from kubectl_devices.model.fleet import read_inventory
from kubectl_devices.model.soundness.finding import Finding, Severity
from kubectl_devices.model.soundness.observed import Observed
from kubectl_devices.model.soundness.verdict import findings, sound
from kubectl_devices.session import Session

_POLL_SECONDS: Final = 2.0
_MARKS: Final = {Severity.PROBLEM: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "bold"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until the installation is sound")
    parser.add_argument("--timeout", type=flags.seconds, default=300.0, metavar="TIME", help="of --wait (default: 5m)")
    flags.output(parser, "json", "yaml")


def run(session: Session) -> int:
    options = session.options
    deadline = time.monotonic() + options.timeout
    told: set[str] = set()
    while True:
        seen = observe(session)
        found = findings(seen)
        if sound(found) or not options.wait or time.monotonic() >= deadline:
            break
        waits = [f"waiting: {f.where}: {f.what}" for f in found if f.severity is Severity.PROBLEM]
        session.out.notes(text for text in waits if text not in told)
        told.update(waits)
        time.sleep(_POLL_SECONDS)
    if not session.out.structured(options.output, [dataclasses.asdict(f) for f in found]):
        _print(session, seen, found)
    return 0 if sound(found) else 1


def observe(session: Session) -> Observed:
    """Reads everything that the user may read."""
    reader, installation = session.reader, session.installation()
    namespace = installation.namespace
    missing: list[str] = []
    lease_name = installation.flag("lease-name", "device-operator")
    lease, lease_read = _one(reader, kinds.LEASES, lease_name, namespace)
    account_name = installation.flag("agent-service-account", "device-operator-agent")
    account, account_read = _one(reader, kinds.SERVICE_ACCOUNTS, account_name, namespace)
    configs = _own(reader, kinds.CONFIGS, missing)
    inventories = _own(reader, kinds.INVENTORIES, missing)
    crds = _listed(reader, kinds.CRDS, "")
    return Observed(
        now=session.api.now,
        namespace=namespace,
        lease_name=lease_name,
        account_name=account_name,
        kinds_missing=tuple(missing),
        crds=None if crds is None else tuple(c for c in crds if c["spec"]["group"] == names.GROUP),
        deployments=installation.deployments,
        lease=lease,
        lease_read=lease_read,
        account=account,
        # without a Deployment the account's name is not known
        account_read=account_read and bool(installation.deployments),
        configs=configs,
        daemonsets=_listed(reader, kinds.DAEMONSETS, namespace),
        pods=_listed(reader, kinds.PODS, namespace),
        events=_listed(reader, kinds.EVENTS, namespace),
        inventories=None if inventories is None else tuple(map(read_inventory, inventories)),
        nodes=_listed(reader, kinds.NODES, ""),
    )


def _one(reader: Reader, kind: Kind, name: str, namespace: str) -> tuple[Object | None, bool]:
    """(the object or None, whether the user may read it)."""
    found = reader.get(kind, name, namespace=namespace, lost="not checked")
    return found, not reader.refused("get", kind)


def _listed(reader: Reader, kind: Kind, namespace: str) -> tuple[Object, ...] | None:
    found = reader.items(kind, namespace=namespace, lost="not checked")
    return None if found is None else tuple(found)


def _own(reader: Reader, kind: Kind, missing: list[str]) -> tuple[Object, ...] | None:
    """Of a kind of ours; one that the API server does not serve is noted in `missing`."""
    try:
        return tuple(reader.api.items(kind))
    except errors.NotFoundError:
        missing.append(kind.plural)
        return ()
    except errors.ForbiddenError:
        return _listed(reader, kind, "")  # notes the gap


def _print(session: Session, seen: Observed, found: tuple[Finding, ...]) -> None:
    for finding in found:
        session.out.styled(finding.severity, _MARKS[finding.severity], f" {finding.reason}: {finding.where}")
        session.out.line(f"    {finding.what}")
        if finding.todo:
            session.out.line(f"    do: {finding.todo}")
    problems = sum(f.severity is Severity.PROBLEM for f in found)
    if problems:
        session.out.line(f"{count(problems, 'problem')} found")
        return
    devices = sum(len(i.devices) for i in seen.inventories or ())
    where = " in what you may read" if session.reader.gaps else ""
    numbers = f"DevicePluginConfigs: {len(seen.configs or ())}, agents: {len(seen.agents)}, devices: {devices}"
    session.out.line(f"No problems found{where}. {numbers}")


COMMAND = Command(
    name="check",
    help="is the installation sound? names the cause if not",
    about=(
        "Checks kinds, operator, agents, nodes, configurations and inventories. The exit status is 0 if no problem was "
        "found, else 1. Warnings and notes do not change it. What you may not read is not checked, and said."
    ),
    arguments=arguments,
    run=run,
)
