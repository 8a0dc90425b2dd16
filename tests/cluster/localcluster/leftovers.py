"""Looks for everything that a cluster could have left on the machine after it went down."""

import json
from collections.abc import Iterator
from pathlib import Path

from localcluster import cgroups
from localcluster.machine import Machine
from localcluster.processes import run, tagged, title
from localcluster.profile import Profile

_LISTENS = "0A"


def find(profile: Profile, *, state: Path) -> list[str]:
    """One line per thing that is left; empty when the cluster is down without a trace."""
    return [
        *(f"process {title(pid)}" for pid in tagged(state)),
        *(f"process {title(pid)} in cgroup {profile.cgroup}" for pid in _in_cgroup(profile.cgroup)),
        *(f"cgroup {folder}" for folder in cgroups.left(profile.cgroup)),
        *_mounts(state),
        *_interfaces(profile),
        *_routes(profile),
        *_rules(profile),
        *(f"port {port} is listened on" for port in sorted(_listening() & set(profile.ports))),
        *Machine().changed(),
    ]


def _in_cgroup(cgroup: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines = (entry / "cgroup").read_text().splitlines()
            except OSError:
                continue
            if any(f"{line.split(':', 2)[2]}/".startswith(f"/{cgroup}/") for line in lines):
                yield int(entry.name)


def _mounts(state: Path) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if str(state) in fields[3] or fields[4].startswith(f"{state}/"):
            yield f"mount at {fields[4]}"


def _interfaces(profile: Profile) -> Iterator[str]:
    for link in json.loads(run(["ip", "-json", "link"])):
        name = link["ifname"]
        if name == profile.bridge or name.startswith(f"{profile.bridge}n"):
            yield f"interface {name}"


def _routes(profile: Profile) -> Iterator[str]:
    ours = tuple(_prefix(net) for net in (profile.node_net, profile.pod_net, profile.service_net))
    for route in json.loads(run(["ip", "-json", "route", "show", "table", "all"])):
        if str(route.get("dst", "")).startswith(ours):
            yield f"route to {route['dst']}"


def _rules(profile: Profile) -> Iterator[str]:
    ours = [_prefix(net) for net in (profile.node_net, profile.pod_net, profile.service_net)]
    for line in run(["nft", "list", "ruleset"]).splitlines():
        if any(f" {net}" in line for net in ours) or f'"{profile.bridge}' in line:
            yield f"packet filter rule {line.strip()[:120]}"


def _prefix(net: str) -> str:
    """The part of a network's address that all its members share, e.g. `10.89.3.`"""
    address, bits = net.split("/")
    return ".".join(address.split(".")[: int(bits) // 8]) + "."


def _listening() -> set[int]:
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports
