"""The command line: `python3 -m localcluster COMMAND`."""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from localcluster import binaries, demo, images
from localcluster.cluster import Cluster
from localcluster.console import LocalClusterError, say
from localcluster.node import SERVICES
from localcluster.profile import named


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = chosen.command
    try:
        return command(chosen)
    except LocalClusterError as failed:
        say(f"error: {failed}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; what runs goes on running, `down` ends it")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcluster", description=sys.modules["localcluster"].__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], purpose: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=purpose, description=purpose)
        added.set_defaults(command=command)
        return added

    def add_named(name: str, command: Callable[[argparse.Namespace], int], purpose: str) -> argparse.ArgumentParser:
        added = add(name, command, purpose)
        added.add_argument("name", help="the cluster: demo, test, api, or a name of your own")
        return added

    build = add("binaries", _binaries, "build the cluster's programs, once per pinned version")
    build.add_argument("group", nargs="*", help=f"{', '.join(binaries.GROUPS)}; all but kwok when omitted")

    build_images = add("images", _images, "build the project's images, and the one that test pods run")
    build_images.add_argument("--out", type=Path, help="a folder to put the archives in")
    add("demo", _demo, "run the product on two nodes; CLUSTER=existing CONTEXT=... REGISTRY=... uses your cluster")
    add("demo-down", _demo_down, "end the demo and leave nothing behind")

    up = add_named("up", _up, "start a cluster, or what is missing of it")
    up.add_argument("--nodes", type=int, help="number of nodes (2)")
    up.add_argument("--controller-manager", action="store_true", help="run it in a control plane without nodes too")
    up.add_argument("--node-hook", type=Path, help="shell file sourced in every node before anything starts there")
    add_named("down", _down, "stop a cluster, keeping its state")
    add_named("clean", _clean, "stop a cluster and remove its state")
    add_named("check-clean", _check_clean, "verify that a stopped cluster has left nothing on the machine")
    add_named("status", _status, "list a cluster's processes")

    for program in ("kubectl", "helm"):
        tool = add_named(program, _tool, f"run {program} as the cluster's admin")
        tool.set_defaults(program=program)
        tool.add_argument("arguments", nargs=argparse.REMAINDER)

    inside = add_named("in", _in, "run a command inside a node")
    inside.add_argument("node", type=int, help="the node's number")
    inside.add_argument("arguments", nargs=argparse.REMAINDER)

    for verb in ("stop", "start", "restart"):
        service = add_named(verb, _service, f"{verb} a node's service")
        service.set_defaults(verb=verb)
        service.add_argument("node", type=int, help="the node's number")
        service.add_argument("service", choices=SERVICES)
        if verb != "start":
            service.add_argument("--signal", default="TERM", help="the signal's name, e.g. KILL (TERM)")

    load = add_named("load", _load, "import an image archive into nodes that lack it")
    load.add_argument("archive", type=Path)
    load.add_argument("node", nargs="*", type=int, help="the nodes' numbers; all when omitted")
    return parser


def _cluster(chosen: argparse.Namespace) -> Cluster:
    return Cluster(named(chosen.name))


def _binaries(chosen: argparse.Namespace) -> int:
    binaries.build(chosen.group or binaries.CLUSTER)
    for name in chosen.group or binaries.CLUSTER:
        print(binaries.folder(name))
    return 0


def _images(chosen: argparse.Namespace) -> int:
    for image in (*images.build().values(), images.python()):
        shown = image.archive
        if chosen.out is not None:
            chosen.out.mkdir(parents=True, exist_ok=True)
            shown = chosen.out / f"{image.name}.tar"
            shutil.copyfile(image.archive, shown)
        print(f"{image.reference}\t{shown}")
    return 0


def _demo(_: argparse.Namespace) -> int:
    demo.start(os.environ)
    return 0


def _demo_down(_: argparse.Namespace) -> int:
    demo.stop(os.environ)
    return 0


def _up(chosen: argparse.Namespace) -> int:
    profile = named(chosen.name)
    if chosen.controller_manager:
        profile = replace(profile, controller_manager=True)
    if chosen.node_hook is not None:
        profile = replace(profile, node_hook=chosen.node_hook)
    Cluster(profile).up(nodes=chosen.nodes)
    return 0


def _down(chosen: argparse.Namespace) -> int:
    _cluster(chosen).down()
    return 0


def _clean(chosen: argparse.Namespace) -> int:
    _cluster(chosen).clean()
    return 0


def _check_clean(chosen: argparse.Namespace) -> int:
    left = _cluster(chosen).leftovers()
    for line in left:
        print(line)
    say(f"the cluster {chosen.name!r} has left {len(left) or 'nothing'}{' things' if left else ''} on this machine")
    return 1 if left else 0


def _status(chosen: argparse.Namespace) -> int:
    running = _cluster(chosen).pids
    for name, pid in running.items():
        print(f"{pid:>8} {name}")
    return 0 if running else 1


def _tool(chosen: argparse.Namespace) -> int:
    return _cluster(chosen).attach(chosen.program, _rest(chosen))


def _in(chosen: argparse.Namespace) -> int:
    return _cluster(chosen).attach_node(chosen.node, _rest(chosen) or ["bash"])


def _rest(chosen: argparse.Namespace) -> list[str]:
    arguments: list[str] = chosen.arguments
    return arguments[1:] if arguments[:1] == ["--"] else arguments


def _service(chosen: argparse.Namespace) -> int:
    cluster = _cluster(chosen)
    if chosen.verb != "start":
        try:
            number = signal.Signals[f"SIG{chosen.signal.upper().removeprefix('SIG')}"]
        except KeyError:
            raise LocalClusterError(f"no signal has the name {chosen.signal!r}") from None
        cluster.stop_service(chosen.node, chosen.service, number)
    if chosen.verb != "stop":
        cluster.start_service(chosen.node, chosen.service)
    return 0


def _load(chosen: argparse.Namespace) -> int:
    _cluster(chosen).load_image(chosen.archive, chosen.node or None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
