"""Every document that the check accepts can be served: no later step fails."""

import copy
import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from device_agent.allocate import answer as injection
from device_agent.allocate.preferred import preferred
from device_agent.contract.document import ContractError, Document
from device_agent.discovery.scanner import Scanner
from device_agent.discovery.source import Roots
from device_agent.kubelet import plugin
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.report import inventory
from device_agent.runtime.errors import AllocationRefused
from device_agent.select.selection import select
from device_agent.store.configuration import checked_document
from device_agent.table.device_table import DeviceTable
from device_agent.table.holders import Listing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.discovery.tree import HostTreeBuilder

EVERYTHING: dict[str, Any] = {
    "contractVersion": 1,
    "resources": [
        {
            "name": "example.com/a-{name}",
            "devices": [
                {
                    "files": {"paths": ["/dev/tty*", "/dev/serial/*/x*"]},
                    "include": [{"attribute": "path", "values": ["/dev/*"]}],
                },
                {"sysfs": {"subsystem": "misc", "names": ["kvm", "f*"]}},
            ],
            "exclude": [{"attribute": "attr.colour/x", "values": ["red", "[a-z]"]}],
            "unit": "name",
            "maxDevices": 8,
            "ownership": "Exclusive",
            "sharing": {
                "replicas": 3,
                "maxPerContainer": 3,
                "perDevice": [{"match": {"attribute": "name", "values": ["kvm"]}, "replicas": 2}],
            },
            "allocation": {"policy": "Packed", "counts": [1, 2, 3], "topologyHints": "Publish"},
            "inject": {
                "ownNodes": "All",
                "deviceNodes": [
                    {"own": "tty*", "containerPath": "/dev/m{position}", "permissions": "r", "env": "NODE{position}"},
                    {"hostPath": "/dev/kvm", "containerPath": "/x/{name}", "permissions": "rw", "optional": True},
                ],
                "mounts": [{"hostPath": "/opt/{name}", "containerPath": "/opt/{name}", "readOnly": True}],
                "env": [{"name": "A{position}", "value": "{path},{{x}}", "counts": [1], "optional": True}],
                "annotations": [{"name": "example.com/{position}", "value": "{name}"}],
                "cdiDevices": ["example.com/class={name}"],
            },
        },
        {
            "name": "example.com/pci",
            "devices": [
                {"pci": {"ids": ["1af4:*"], "classes": ["02*"], "drivers": ["virtio-pci"], "addresses": ["0000:*"]}}
            ],
            "inject": {"env": [{"name": "PCI", "value": "{pci.address} {pci.attr.rev}"}]},
        },
        {
            "name": "example.com/sim",
            "devices": [{"simulated": {"count": 4, "numaNodes": 2, "unhealthy": [1]}}],
            "ownership": "None",
            "unit": "index",
        },
    ],
}
"""A document that uses every field and can be served."""

PIECES = [
    *("", "\x00", "\ud800", "\n", "é", "..", "/", "//", "{", "}", "{{", "[", "[!", "[z-a]", "*", "?", "\\", "=", ":"),
    *("{name}", "{position}", "{index}", "{path}", "{numaNode}", "/dev/", "/dev/tty*", "a", "node", "0", "-", "."),
    *("a" * 300, "/a" * 2500, "::1"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=4).map("".join) | st.text(st.characters(codec=None), max_size=6)
numbers = st.sampled_from([-(2**70), -1, 0, 1, 2, 7, 20_000, 20_001, 2**31, 2**63, 2**70])


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(inner, dict | list):
            yield from leaves(inner, (*path, key))
        else:
            yield (*path, key)


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def edited(edits: list[tuple[tuple[Any, ...], Any]]) -> dict[str, Any]:
    document = copy.deepcopy(EVERYTHING)
    for (*parents, key), value in edits:
        at(document, tuple(parents))[key] = value
    return document


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """EVERYTHING with up to three values replaced or extended."""
    edits = []
    for path in draw(st.lists(st.sampled_from(sorted(leaves(EVERYTHING), key=str)), max_size=3, unique=True)):
        before = at(EVERYTHING, path)
        if isinstance(before, str):
            text = draw(texts)
            edits.append((path, draw(st.sampled_from([text, before + text, text + before]))))
        elif not isinstance(before, bool):
            edits.append((path, draw(numbers)))
    return edited(edits)


@pytest.fixture(scope="module")
def roots() -> Iterator[Roots]:
    with tempfile.TemporaryDirectory() as folder:
        host = HostTreeBuilder(Path(folder))
        function = host.pci("0000:00:03.0", "1af4:1041", driver="virtio-pci", numa=1)
        host.write(f"{function}/rev", b"\xff\x00{name}\n")
        host.obj(f"{function}/tty/ttyS0", "tty", devname="ttyS0")
        host.obj("devices/virtual/misc/kvm", "misc", devname="kvm")
        host.pci("0000:00:04.0", "1af4:1041", driver="vfio-pci", group=3)
        host.node("serial/by-id/x1")
        host.dev_link("round", "round")
        for name in (b"tty\xff", b"tty\n", b"ttyx{"):
            (host.dev / os.fsdecode(name)).touch()
        os.mkfifo(host.dev / "fifo")
        yield host.roots


def serve(document: Document, roots: Roots) -> None:
    """Does everything that the agent does with a document, without sockets."""
    scanner = Scanner(roots)
    selection = select(document, scanner.scan(document), dev=scanner.device_nodes())
    table = DeviceTable(document)
    wall = datetime(2026, 1, 1, tzinfo=UTC)
    table.apply_selection(selection, now=1.0, wall=wall)
    table.apply_listing(Listing(), begun=2.0, now=2.0, wall=wall)
    for name in table.resources():
        entry = table.entry(name)
        plugin.options(entry).SerializeToString()
        listed = table.listed(name)
        plugin.device_list(listed).SerializeToString()
        ids = [device.id for device in listed[:3]]
        preferred(ids, (), 2, policy=entry.allocation.policy, places=table.places(name))
        for chosen in (ids[:1], ids):
            try:
                answer = injection.respond(entry, table.units_of(name, chosen))
            except AllocationRefused:
                continue
            plugin.fill(dp.ContainerAllocateResponse(), answer)
            table.note(name, chosen)
    observed = inventory.AgentFacts(config_hash="", config_error="", registrations={})
    identity = inventory.AgentIdentity(node="n", config="c", config_uid="u", pool="p", version="1")
    inventory.build(table.snapshot(), observed, identity=identity, limit=64 * 1024)


def test_a_document_with_every_field_can_be_served(roots: Roots) -> None:
    serve(checked_document(json.dumps(EVERYTHING).encode()).document, roots)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=documents())
def test_an_accepted_document_can_be_served(roots: Roots, content: dict[str, Any]) -> None:
    try:
        accepted = checked_document(json.dumps(content).encode())
    except ContractError as error:
        problem = str(error)
    else:
        problem = ""
        serve(accepted.document, roots)
    assert "\n" not in problem
