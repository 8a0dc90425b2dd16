"""`kubectl devices explain`: what a configuration would select on a node before it is applied, and why not the rest."""

import argparse
import sys
from pathlib import Path
from typing import Any

from device_operator.spec.caveats import caveats

from kubectl_devices import errors, tree
from kubectl_devices.cluster.kinds import CONFIGS
from kubectl_devices.commands import flags, scanning
from kubectl_devices.commands.command import Command
from kubectl_devices.model import explanation, specs
from kubectl_devices.model.specs import Wanted
from kubectl_devices.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", default="", metavar="CONFIG", help="its name; needed if there are several")
    parser.add_argument(
        "-f",
        "--filename",
        default="",
        metavar="FILE",
        help="YAML or JSON with it; - is standard input (default: the cluster's)",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--node", default="", metavar="NAME", help="scan this node, by a short-lived pod that is root there"
    )
    where.add_argument("--tree", type=Path, metavar="DIR", help="scan the sys and dev below DIR; / is this machine")
    parser.add_argument("--pool", default="", metavar="NAME", help="the pool to try (default: the one of the node)")
    scanning.arguments(parser)
    flags.output(parser, "json", "yaml")


def run(session: Session) -> int:
    options = session.options
    raw = _config(session)
    if options.node:
        node = scanning.node(session, options.node)
        wanted = specs.wanted(raw, pool=options.pool, node=node, written=bool(options.filename))
        scan = scanning.on_node(session, options.node, wanted.document, wanted.pool.agent)
    else:
        wanted = specs.wanted(raw, pool=options.pool, written=bool(options.filename))
        document, lost = specs.without_drivers(wanted.document)
        scan = tree.scan(options.tree, document)
        session.out.notes(f"{name}: NVIDIA devices cannot be looked for in files; use --node" for name in lost)
    _print(session, wanted, scan)
    return 0


def _config(session: Session) -> Any:
    """The DevicePluginConfig as JSON.

    Raises:
        errors.UsageError: the file cannot be read, or it is not clear which object is meant.
    """
    options = session.options
    if not options.filename:
        if not options.config:
            return specs.chosen(session.api.items(CONFIGS), "", source="the cluster")
        return session.api.get(CONFIGS, options.config)
    try:
        text = sys.stdin.read() if options.filename == "-" else Path(options.filename).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise errors.UsageError(f"{options.filename}: {getattr(error, 'strerror', None) or error}") from error
    found = specs.configs(tree.documents(options.filename, text))
    return specs.chosen(found, options.config, source=options.filename)


def _print(session: Session, wanted: Wanted, scan: dict[str, Any]) -> None:
    out = session.out
    if out.structured(session.options.output, scan):
        return
    where = session.options.node or session.options.tree
    out.line(f"{wanted.name}, pool {wanted.pool.name}, on {where} would offer {_devices(len(scan['devices']))}")
    if scan["devices"]:
        out.table(explanation.offered(scan))
        out.line()
        out.table(explanation.given(scan))
        out.line()
        out.table(explanation.checks(wanted.document))
    if scan["excluded"]:
        out.line()
        out.line("Not selected:")
        out.table(explanation.left_out(scan))
    out.notes(explanation.remarks(scan))
    out.notes(f"when applied, the operator would warn: {text}" for text in caveats(wanted.spec))


def _devices(number: int) -> str:
    return "1 device" if number == 1 else f"{number or 'no'} devices"


COMMAND = Command(
    name="explain",
    help="what a configuration would select on a node, before it is applied",
    about=(
        "Shows which devices each resource would get, what a container with each device would get, what makes a device "
        "Unhealthy, and a reason for each device that is left out. With --node a pod "
        "of the agent's image looks; you need the right to create pods in the operator's namespace, and whoever has it "
        "is root on the nodes. With --tree nothing is asked of a cluster, if -f is given too."
    ),
    arguments=arguments,
    run=run,
)
