"""`kubectl devices hardware`: what a node has, configured or not, with entries to copy."""

import argparse
from pathlib import Path

from device_operator.spec.agent_settings import AgentSettings

from kubectl_devices import errors, tree
from kubectl_devices.commands import flags, scanning
from kubectl_devices.commands.command import Command
from kubectl_devices.model import survey
from kubectl_devices.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "node", nargs="?", default="", metavar="NODE", help="scanned by a short-lived pod that is root there"
    )
    parser.add_argument("--tree", type=Path, metavar="DIR", help="scan the sys and dev below DIR; / is this machine")
    scanning.arguments(parser)
    flags.output(parser, "json", "yaml")


def run(session: Session) -> int:
    options, out = session.options, session.out
    if bool(options.node) == (options.tree is not None):
        raise errors.UsageError("name a node, or a folder with --tree")
    document = survey.document()
    if options.node:
        scanning.node(session, options.node)
        scan = scanning.on_node(session, options.node, document, AgentSettings())
    else:
        scan = tree.scan(options.tree, document)
    found = survey.kinds(scan["devices"])
    if options.output == "json":
        out.json(
            [{"entry": entry, "devices": k.devices} for entry, k in zip(survey.entries(found), found, strict=True)]
        )
        return 0
    if options.output != "yaml":
        if not found:
            out.notes(["nothing was found that pods usually ask for"])
            return 0
        out.table(survey.hardware_table(found))
        out.line()
        out.line("# entries for spec.resources; choose some and give them names of your own")
    out.yaml(survey.entries(found), compact=True)
    out.notes(f"{kind.name}: {kind.remark}" for kind in found if kind.remark)
    out.notes(scan["errors"])
    return 0


COMMAND = Command(
    name="hardware",
    help="what a node has, configured or not, with entries to copy",
    about=(
        "Lists PCI functions, devices of known classes and device files, and an entry of spec.resources for each kind. "
        "-o yaml prints the entries alone. A node is scanned as by `explain --node`, with the same rights."
    ),
    arguments=arguments,
    run=run,
)
