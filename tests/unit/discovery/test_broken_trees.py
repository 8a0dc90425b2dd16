"""A broken object affects only itself: the others are found, and later scans go on."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from device_agent.contract.document import Document, parse_resource
from device_agent.discovery.scanner import SOURCES, Scanner
from device_agent.discovery.source import Roots
from device_agent.scan import scan_json
from device_agent.select.found import FoundDevice
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from unit.discovery.tree import ROOT, HostTreeBuilder

ENTRIES = [
    {"name": "example.com/pci", "ownership": "None", "devices": [{"pci": {}}]},
    {"name": "example.com/misc", "ownership": "None", "devices": [{"sysfs": {"subsystem": "misc"}}]},
    {
        "name": "example.com/files",
        "ownership": "None",
        "devices": [{"files": {"paths": ["/dev/m*", "/dev/link*", "/dev/box*"]}}],
        "exclude": [{"attribute": a, "values": ["?"]} for a in ("attr.state", "pf.attr.state", "usb.attr.state")],
    },
]
INTACT = {"pci": {"0000:00:01.0", "0000:00:02.0"}, "sysfs": {"m1", "m2"}, "files": {"m1", "m2"}}


def document(*entries: dict[str, Any]) -> Document:
    return Document(tuple(parse_resource(e, path=f"resources[{i}]") for i, e in enumerate(entries)))


def build(root: Path) -> HostTreeBuilder:
    """A node with two intact functions and two intact misc devices, and one of each that a test breaks."""
    host = HostTreeBuilder(root)
    for slot in (1, 2, 9):
        host.pci(f"0000:00:0{slot}.0", "8086:1521", driver="igb", group=slot)
    for name in ("m1", "m2", "m9"):
        host.obj(f"devices/virtual/misc/{name}", "misc", devname=name)
    return host


FUNCTION = f"{ROOT}/0000:00:09.0"
MISC = "devices/virtual/misc/m9"


def look(host: HostTreeBuilder, scanner: Scanner | None = None) -> dict[str, dict[str, FoundDevice]]:
    findings = (scanner or Scanner(host.roots)).scan(document(*ENTRIES))
    return {f.source: {d.name: d for d in finds} for (finds,) in findings.by_entry for f in finds}


def check_intact(found: dict[str, dict[str, FoundDevice]]) -> None:
    for source, names in INTACT.items():
        for name in names:
            assert found[source][name].left_out is None
            assert found[source][name].problem is None


def replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def chain(path: Path, length: int = 500) -> None:
    """Makes `path` lead to its old target over `length` more links."""
    target = path.readlink()
    path.unlink()
    for i in range(length):
        Path(f"{path}.{i}").symlink_to(f"{path.name}.{i + 1}")
    Path(f"{path}.{length}").symlink_to(target)
    path.symlink_to(f"{path.name}.0")


def pci_link(host: HostTreeBuilder) -> Path:
    return host.sys / "bus/pci/devices/0000:00:09.0"


def misc_link(host: HostTreeBuilder) -> Path:
    return host.sys / "class/misc/m9"


BROKEN: dict[str, tuple[Callable[[HostTreeBuilder], object], dict[str, str]]] = {
    "a chain of 500 links": (
        lambda host: chain(misc_link(host)),
        {"sysfs m9": "/sys/class/misc/m9"},
    ),
    "a circle": (
        lambda host: replace(pci_link(host), lambda p: p.symlink_to("0000:00:09.0")),
        {"pci 0000:00:09.0": "/sys/bus/pci/devices/0000:00:09.0"},
    ),
    "a name that is too long": (
        lambda host: replace(misc_link(host), lambda p: p.symlink_to("x" * 300)),
        {"sysfs m9": "/sys/class/misc/m9"},
    ),
    "a NUL in DEVNAME": (
        lambda host: host.write(f"{MISC}/uevent", b"DEVNAME=x\0y\n"),
        {"sysfs m9": f"/sys/{MISC}/uevent"},
    ),
    "no vendor": (
        lambda host: (host.sys / FUNCTION / "vendor").unlink(),
        {"pci 0000:00:09.0": f"/sys/{FUNCTION}/vendor"},
    ),
    "an empty vendor": (
        lambda host: host.write(f"{FUNCTION}/vendor", ""),
        {"pci 0000:00:09.0": f"/sys/{FUNCTION}/vendor"},
    ),
    "a vendor of a million bytes": (
        lambda host: host.write(f"{FUNCTION}/vendor", b"\xff" * 1_000_000),
        {"pci 0000:00:09.0": f"/sys/{FUNCTION}/vendor"},
    ),
    "a directory for the vendor": (
        lambda host: replace(host.sys / FUNCTION / "vendor", Path.mkdir),
        {"pci 0000:00:09.0": f"/sys/{FUNCTION}/vendor"},
    ),
    "a FIFO for the vendor": (
        lambda host: replace(host.sys / FUNCTION / "vendor", os.mkfifo),
        {"pci 0000:00:09.0": f"/sys/{FUNCTION}/vendor"},
    ),
    "a link for the vendor": (
        lambda host: replace(host.sys / FUNCTION / "vendor", lambda p: p.symlink_to("device")),
        {"pci 0000:00:09.0": f"/sys/{FUNCTION}/vendor"},
    ),
    "a circle in /dev": (
        lambda host: host.dev_link("link9", "link9"),
        {"files link9": "/dev/link9"},
    ),
    "a circle in a directory of /dev": (
        lambda host: host.dev_link("box9/link", "link"),
        {"files box9": "/dev/box9/link"},
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_unreadable_device_is_left_out_with_its_path_and_the_others_are_found(tmp_path: Path, case: str):
    host, (breaks, expected) = build(tmp_path), BROKEN[case]
    breaks(host)
    scanner = Scanner(host.roots)
    for _ in range(2):  # the next scan goes on
        found = look(host, scanner)
        check_intact(found)
        unreadable = {
            f"{source} {device.name}": device.left_out[1]
            for source, devices in found.items()
            for device in devices.values()
            if device.left_out and device.left_out[0] == "Unreadable"
        }
        assert {key: unreadable.get(key, "nothing")[: len(path)] for key, path in expected.items()} == expected
        assert len(unreadable) >= len(expected)
    json.dumps(scan_json(document(*ENTRIES), host.roots)).encode()


def test_a_link_target_of_1100_parts_leads_where_it_does_for_the_kernel(tmp_path: Path):
    host = build(tmp_path)
    replace(misc_link(host), lambda p: p.symlink_to("../../devices/virtual/misc/" + "m1/../" * 550 + "m9"))
    replace(pci_link(host), lambda p: p.symlink_to("x/../" * 550 + "0000:00:09.0"))
    found = look(host)
    check_intact(found)
    assert (found["sysfs"]["m9"].sysfs_path, found["sysfs"]["m9"].left_out) == (MISC, None)
    assert "0000:00:09.0" not in found["pci"], "it leads to what is not there: unplugged meanwhile"


@pytest.mark.parametrize("name", ["a\nb", os.fsdecode(b"m\xff"), "m\x1b[31m", "m" * 255])
def test_a_device_with_a_strange_name_is_found_or_left_out(tmp_path: Path, name: str):
    host = build(tmp_path)
    host.obj(f"devices/virtual/misc/{name}", "misc", devname=f"dev-{len(name)}")
    host.node(f"m{name[:200]}")
    check_intact(look(host))
    scanned = scan_json(document(*ENTRIES), host.roots)
    everything = {d["id"] for d in scanned["devices"]} | {e["id"] for e in scanned["excluded"]}
    assert {"0000:00:01.0", "m1"} <= {d["value"] for d in scanned["devices"]}
    assert len(everything) >= 9
    json.dumps(scanned).encode()


def test_a_device_below_an_unreadable_function_is_found_without_the_functions_attributes(tmp_path: Path):
    host = build(tmp_path)
    tty = host.obj(f"{FUNCTION}/tty/ttyX0", "tty", devname="ttyX0")
    (host.sys / FUNCTION / "vendor").unlink()
    (find,) = (
        Scanner(host.roots)
        .scan(document({"name": "example.com/tty", "devices": [{"sysfs": {"subsystem": "tty"}}]}))
        .by_entry[0][0]
    )
    assert (find.sysfs_path, find.left_out) == (tty, None)
    assert not any(name.startswith("pci.") for name in find.attributes)


def test_an_iommu_group_with_an_unreadable_function_is_not_offered(tmp_path: Path):
    host = HostTreeBuilder(tmp_path)
    host.pci("0000:00:01.0", "10de:20b5", driver="vfio-pci", group=1)
    other = host.pci("0000:00:01.1", "10de:10f0", driver="snd_hda_intel", group=1)
    (host.sys / other / "vendor").unlink()
    scanned = scan_json(document({"name": "example.com/gpu", "devices": [{"pci": {}}]}), host.roots)
    assert scanned["devices"] == []
    assert {e["id"]: e["reason"] for e in scanned["excluded"]} == {
        "0000:00:01.0": "GroupNotViable",
        "0000:00:01.1": "Unreadable",
    }


def test_an_unreadable_function_is_not_reported_to_an_entry_of_other_addresses(tmp_path: Path):
    host = build(tmp_path)
    (host.sys / FUNCTION / "vendor").unlink()
    fields = {"name": "example.com/x", "devices": [{"pci": {"addresses": ["0000:00:01.0"]}}]}
    assert scan_json(document(fields), host.roots)["excluded"] == []


class FailingSource:
    """A source with a defect."""

    def __init__(self, tree: object) -> None:
        pass

    def scan(self, entry: object, *, owner: str, wanted: frozenset[str]) -> tuple[FoundDevice, ...]:
        raise ZeroDivisionError(owner)

    def nothing(self, entry: object) -> str:
        raise ZeroDivisionError


def test_a_failing_source_affects_only_its_entries_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    host = build(tmp_path)
    monkeypatch.setitem(SOURCES, "sysfs", FailingSource)
    scanner = Scanner(host.roots)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            findings = scanner.scan(document(*ENTRIES))
            assert [len(finds) for (finds,) in findings.by_entry] == [3, 0, 3]
            assert list(findings.failed) == [(1, 0)]
    (record,) = [r for r in caplog.records if r.exc_info]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    scanned = scan_json(document(*ENTRIES), host.roots)
    assert {(e["entry"], e["id"], e["reason"]) for e in scanned["excluded"]} == {
        ("example.com/misc", "devices[0]", "Unreadable")
    }


def test_a_defect_at_one_object_affects_only_that_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    host = build(tmp_path)
    from device_agent.discovery.sysfs_tree import SysfsTree

    real = SysfsTree.own_nodes

    def own_nodes(tree: SysfsTree, path: str, **more: Any) -> object:
        if path == MISC:
            raise RecursionError
        return real(tree, path, **more)

    monkeypatch.setattr(SysfsTree, "own_nodes", own_nodes)
    scanner = Scanner(host.roots)
    for _ in range(2):
        found = look(host, scanner)
        check_intact(found)
        assert found["sysfs"]["m9"].left_out is not None
        assert found["sysfs"]["m9"].left_out[0] == "Unreadable"
    assert len([r for r in caplog.records if r.exc_info]) == 1


# Any tree

NAMES = st.one_of(
    st.sampled_from(["m1", "uevent", "vendor", "dev", "..", "a\nb", "é"]),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=8),
    st.binary(min_size=1, max_size=8).map(os.fsdecode).filter(lambda n: "/" not in n and "\0" not in n),
).filter(lambda n: n not in (".", ".."))
TARGETS = st.one_of(
    st.sampled_from(
        ["", "..", "../..", "/", "/sys", "/sys/class", "/etc/passwd", "x" * 300, "a/" * 1100, "m9", "../m9"]
    ),
    st.lists(st.sampled_from(["..", "devices", "virtual", "misc", "m1", "m9", ROOT, "0000:00:09.0"]), max_size=9).map(
        "/".join
    ),
)
PLACES = st.sampled_from(
    [
        *(f"sys/{FUNCTION}{name}" for name in ("", "/vendor", "/device", "/class", "/driver", "/iommu_group", "/physfn",
            "/virtfn0", "/numa_node", "/uevent", "/subsystem", "/net", "/drm/card9")),
        *(f"sys/{MISC}{name}" for name in ("", "/uevent", "/dev", "/subsystem", "/state", "/inner", "/inner/uevent")),
        "sys/bus/pci/devices/0000:00:09.0", "sys/bus/pci/devices/0000:00:0a.0", "sys/bus/pci/devices/x",
        "sys/class/misc/m9", "sys/class/misc/m8", "sys/dev/char/240:3", "sys/dev/char/240:77",
        "sys/kernel/iommu_groups/9/name", "dev/m9", "dev/link0", "dev/box/m", "dev/box/inner/m",
    ]
)  # fmt: skip
KINDS = st.one_of(
    st.tuples(st.just("file"), st.one_of(st.binary(max_size=64), st.just(b"DEVNAME=x\0y\n"), st.just(b"9" * 5000))),
    st.tuples(st.just("link"), TARGETS),
    st.tuples(st.sampled_from(["folder", "fifo", "nothing", "chain"]), st.none()),
)


def damage(root: Path, place: str, kind: str, content: bytes | str | None) -> None:
    """Replaces an object of a tree. What the file system refuses cannot be in a tree, and is skipped."""
    path = root / place
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.is_file() or path.is_fifo():
            path.unlink()
        elif path.is_dir():
            path.rename(root / f"gone{len(list(root.iterdir()))}")
        if kind == "file":
            assert isinstance(content, bytes)
            path.write_bytes(content)
        elif kind == "link":
            path.symlink_to(str(content))
        elif kind == "folder":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "chain":
            for i in range(60):
                Path(f"{path}.l{i}").symlink_to(f"{path.name}.l{i + 1}")
            path.symlink_to(f"{path.name}.l0")
    except (OSError, ValueError):
        pass


@given(st.lists(st.tuples(PLACES, KINDS), max_size=6), st.lists(NAMES, max_size=3))
@example([("sys/devices/virtual/misc/m9", ("link", "m1"))], [])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_intact_devices_are_found_in_any_broken_tree(
    tmp_path_factory: pytest.TempPathFactory,
    damages: list[tuple[str, tuple[str, Any]]],
    names: list[str],
):
    root = tmp_path_factory.mktemp("node")
    host = build(root)
    for place, (kind, content) in damages:
        damage(root, place, kind, content)
    for name in names:
        for place in (f"sys/class/misc/{name}", f"dev/m{name}", f"sys/{MISC}/{name}"):
            if not {name, f"m{name}"} & {"m1", "m2"}:
                damage(root, place, "link", "m9")
    scanner = Scanner(host.roots)
    first = look(host, scanner)
    check_intact(first)
    assert look(host, scanner) == first
    scanned = scan_json(document(*ENTRIES), Roots.below(root))
    assert {"m1", "m2", "0000:00:01.0", "0000:00:02.0", "/dev/m1", "/dev/m2"} <= {
        d["value"] for d in scanned["devices"]
    }
    assert scanned["errors"] == [] or all(isinstance(error, str) for error in scanned["errors"])
    json.dumps(scanned).encode()
