"""`kubectl devices top`: load, memory, temperature and power of devices, and who uses them."""

import argparse
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from device_agent.contract import names

from kubectl_devices import errors
from kubectl_devices.cluster.api import Object
from kubectl_devices.cluster.kinds import PODS
from kubectl_devices.commands import flags
from kubectl_devices.commands.command import Command
from kubectl_devices.model import telemetry
from kubectl_devices.model.telemetry import Sample
from kubectl_devices.session import Session

_ORDERS: Final = {
    "busy": "utilisation_percent",
    "memory": "memory_used_mib",
    "power": "power_watts",
    "temp": "temperature_celsius",
}
_AT_ONCE: Final = 16
"""Agents that are asked at the same time."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", nargs="?", default="", metavar="NODE", help="only this node")
    parser.add_argument(
        "--sort-by", choices=tuple(_ORDERS), default="", metavar="COLUMN", help=f"one of: {', '.join(_ORDERS)}"
    )
    flags.output(parser, "json", "yaml")


def run(session: Session) -> int:
    options = session.options
    namespace = session.installation().namespace
    agents = session.api.items(PODS, namespace=namespace, labels=names.LABEL_CONFIG)
    asked = [p for p in agents if p["spec"].get("nodeName") and options.node in ("", p["spec"]["nodeName"])]
    if not asked:
        where = f"node {options.node}" if options.node else f"namespace {namespace}"
        raise errors.CliError(f"there is no agent in {where}; try: kubectl devices check")
    found: list[Sample] = []
    for pod, answer in _answers(session, asked):
        if isinstance(answer, errors.ForbiddenError):
            raise errors.CliError(f"{answer}; telemetry is read from the agents, through the API server")
        if isinstance(answer, errors.CliError):
            session.out.notes([f"{pod['spec']['nodeName']} gives no telemetry: {answer}"])
        else:
            found += telemetry.samples(pod["spec"]["nodeName"], answer)
    found = list(telemetry.ordered(found, by=_ORDERS.get(options.sort_by, "")))
    if not session.out.structured(options.output, [_as_json(s) for s in found]):
        if found:
            session.out.table(telemetry.telemetry_table(found))
        else:
            session.out.notes(["no telemetry: agents have it of NVIDIA GPUs, with agent.deviceMetrics: Prometheus"])
    return 0


def _answers(session: Session, pods: list[Object]) -> list[tuple[Object, str | errors.CliError]]:
    """The metrics of each agent, or why there are none."""

    def ask(pod: Object) -> str | errors.CliError:
        meta = pod["metadata"]
        address = f"{meta['name']}:{names.AGENT_PORT}"
        try:
            return session.api.text(PODS, address, namespace=meta["namespace"], sub="proxy/metrics")
        except errors.CliError as error:
            return error

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(zip(pods, pool.map(ask, pods), strict=True))


def _as_json(sample: Sample) -> dict[str, object]:
    return {**dataclasses.asdict(sample), "holders": list(sample.holders), "values": dict(sample.values)}


COMMAND = Command(
    name="top",
    help="load, memory, temperature and power of devices",
    about=(
        "Reads the agents' metrics through the API server; this needs the right to get pods/proxy in the operator's "
        "namespace. BUSY is the part of the time in which the device worked."
    ),
    arguments=arguments,
    run=run,
)
