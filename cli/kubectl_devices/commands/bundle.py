"""`kubectl devices bundle`: a support archive, without secrets."""

import argparse
import dataclasses
import io
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from device_agent.contract import names

from kubectl_devices import errors
from kubectl_devices.cluster import kinds
from kubectl_devices.cluster.api import Object
from kubectl_devices.commands.check import observe
from kubectl_devices.commands.command import Command
from kubectl_devices.model import support
from kubectl_devices.model.soundness.observed import Objects, Observed, condition, of_a_config
from kubectl_devices.model.soundness.verdict import findings
from kubectl_devices.session import Session

_OPERATOR: Final = "app.kubernetes.io/component"
_EVENTS_OF: Final = frozenset({"DevicePluginConfig", "NodeDeviceInventory"})


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--filename", default="", metavar="FILE", help="default: devices-bundle-<time>.tar.gz, here"
    )
    parser.add_argument("--agents", type=int, default=20, metavar="NUMBER", help="logs of so many agents (default: 20)")
    parser.add_argument(
        "--lines", type=int, default=2000, metavar="NUMBER", help="last lines of each log (default: 2000)"
    )


def run(session: Session) -> int:
    path = Path(session.options.filename or time.strftime("devices-bundle-%Y%m%d-%H%M%S.tar.gz", time.gmtime()))
    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    now = int(time.time())
    try:
        # for the user alone: it has names of pods in all namespaces
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise errors.UsageError(f"{path}: {error.strerror}; name another file with -f") from error
    number = 0
    with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in _files(session):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime = len(content), now
            archive.addfile(entry, io.BytesIO(content))
            number += 1
    session.out.line(f"{path}: {number} files; README.txt in it says what they are")
    return 0


def _files(session: Session) -> Iterator[tuple[str, bytes]]:
    """(path in the archive, content) of every file."""
    seen = observe(session)
    yield "README.txt", support.README.encode()
    yield support.findings(dataclasses.asdict(f) for f in findings(seen))
    listed = {
        "customresourcedefinitions": seen.crds,
        "deployments": seen.deployments,
        "leases": (seen.lease,) if seen.lease else (),
        "devicepluginconfigs": seen.configs,
        "nodedeviceinventories": session.reader.items(kinds.INVENTORIES, lost="not in the archive"),
        "daemonsets": _ours(seen.daemonsets),
        "configmaps": session.reader.items(
            kinds.CONFIGMAPS, namespace=seen.namespace, labels=names.LABEL_CONFIG, lost="not in the archive"
        ),
        "pods": (*_operators(seen), *seen.agents),
        "events": (*(seen.events or ()), *_own_events(session)),
        "nodes": seen.nodes,
    }
    for kind, found in listed.items():
        yield support.objects(kind, found or ())
    yield from _logs(session, seen)
    yield support.missing(session.reader.gaps)


def _ours(found: Objects | None) -> list[Object]:
    return [dict(o) for o in found or () if of_a_config(o)]


def _operators(seen: Observed) -> list[Object]:
    return [dict(p) for p in seen.pods or () if p["metadata"].get("labels", {}).get(_OPERATOR) == "operator"]


def _own_events(session: Session) -> list[Object]:
    """About our kinds. Events of cluster-scoped objects are in the namespace default."""
    found = session.reader.items(kinds.EVENTS, namespace="default", lost="not in the archive")
    return [e for e in found or () if e.get("involvedObject", {}).get("kind") in _EVENTS_OF]


def _logs(session: Session, seen: Observed) -> Iterator[tuple[str, bytes]]:
    """Of every operator and of some agents, those that are not Ready first."""
    agents = sorted(seen.agents, key=lambda p: (condition(p, "Ready").get("status") == "True", p["metadata"]["name"]))
    for pod in (*_operators(seen), *agents[: session.options.agents]):
        meta = pod["metadata"]
        states = pod.get("status", {}).get("containerStatuses") or ()
        restarted = any(s.get("restartCount") for s in states)
        for previous in (False, True) if restarted else (False,):
            content = _log(session, meta["namespace"], meta["name"], previous=previous)
            if content is not None:
                yield support.log(meta["namespace"], meta["name"], content, previous=previous)


def _log(session: Session, namespace: str, pod: str, *, previous: bool) -> str | None:
    query = {"tailLines": str(session.options.lines), **({"previous": "true"} if previous else {})}
    try:
        return session.reader.text(
            kinds.PODS, pod, namespace=namespace, sub="log", lost="no logs are in the archive", **query
        )
    except errors.CliError as error:  # the kubelet does not answer, or the container has not started
        return f"(no log: {error})\n"


COMMAND = Command(
    name="bundle",
    help="a support archive without secrets",
    about=(
        "Writes objects, logs and the result of `check` into a .tar.gz for the maintainers. Reads no Secrets, and "
        "removes values that look like some. It has names of nodes and pods: look through it before you share it."
    ),
    arguments=arguments,
    run=run,
)
