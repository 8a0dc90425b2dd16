"""`device-agent scan`, and the scanner on the machine that runs the tests."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from device_agent import scan
from device_agent.contract.document import Document, dump, parse_resource
from device_agent.contract.names import MAX_DOCUMENT_BYTES
from device_agent.discovery.scanner import Scanner
from device_agent.discovery.source import Roots
from unit.discovery.tree import HostTreeBuilder


def document(*entries: dict[str, Any]) -> Document:
    return Document(tuple(parse_resource(e, path=f"resources[{i}]") for i, e in enumerate(entries)))


def config(tmp_path: Path, *entries: dict[str, Any]) -> Path:
    path = tmp_path / "config.json"
    path.write_bytes(dump(document(*entries)))
    return path


def test_a_captured_tree_is_scanned_to_json(host: HostTreeBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    host.obj("devices/virtual/misc/kvm", "misc", devname="kvm")
    host.obj("devices/virtual/misc/fuse", "misc", devname="fuse")
    fields = {
        "name": "example.com/kvm",
        "devices": [{"sysfs": {"subsystem": "misc"}, "include": [{"attribute": "name", "values": ["kvm"]}]}],
        "inject": {"deviceNodes": [{"hostPath": "/dev/nope"}]},
    }
    assert scan.run(config(tmp_path, fields), host.root) == 0
    out = json.loads(capsys.readouterr().out)
    (device,) = out["devices"]
    assert device["id"] == "kvm"
    assert device["resource"] == device["entry"] == "example.com/kvm"
    assert device["nodes"] == ["/dev/kvm"]
    assert device["attributes"]["subsystem"] == "misc"
    assert device["problem"]["reason"] == "CompanionMissing"
    assert "/dev/nope does not exist on the node" in device["problem"]["message"]
    assert "optional: true" in device["problem"]["message"]
    assert out["excluded"] == [
        {
            "id": "fuse",
            "source": "sysfs",
            "entry": "example.com/kvm",
            "reason": "NotIncluded",
            "message": "devices[0].include[0]: name is 'fuse', not kvm",
        }
    ]
    assert out["errors"] == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "No such file"),
        ("{", "not valid JSON"),
        ('{"contractVersion": 99, "resources": []}', "contract version 99"),
        ('{"contractVersion": 1, "resources": [{"name": "example.com/x", "devicess": []}]}', "did you mean devices?"),
        ('{"contractVersion": 1, "resources": [{"name": "x", "devices": [{"pci": {}}]}]}', "needs a domain"),
    ],
)
def test_an_unusable_configuration_is_reported_on_stderr_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, text: str
):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    assert scan.run(path, tmp_path) == scan.EXIT_CONFIG
    captured = capsys.readouterr()
    assert text in captured.err
    assert str(path) in captured.err
    assert captured.out == ""


def test_a_name_that_is_not_utf8_is_printed(host: HostTreeBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    host.node(os.fsdecode(b"tty\xff"))
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding="utf-8", write_through=True))
    path = config(tmp_path, {"name": "example.com/x", "devices": [{"files": {"paths": ["/dev/tty*"]}}]})
    assert scan.run(path, host.root) == 0
    (excluded,) = json.loads(printed.getvalue())["excluded"]
    assert (excluded["reason"], excluded["id"]) == ("UnsafeValue", "/dev/tty\udcff")


def test_a_configuration_that_is_nested_too_deeply_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "config.json").write_bytes(b"[" * 100_000)
    assert scan.run(tmp_path / "config.json", tmp_path) == scan.EXIT_CONFIG
    assert "nested too deeply" in capsys.readouterr().err


def test_a_root_without_sys_and_dev_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = config(tmp_path, {"name": "example.com/x", "devices": [{"pci": {}}]})
    assert scan.run(path, tmp_path / "nowhere") == scan.EXIT_CONFIG
    assert f"there is neither sys nor dev in {tmp_path / 'nowhere'}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "link to a device"])
def test_a_configuration_that_is_not_a_regular_file_is_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
):
    path = tmp_path / "config.json"
    if kind == "fifo":
        os.mkfifo(path)  # opening it would wait for a writer
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    assert scan.run(path, tmp_path) == scan.EXIT_CONFIG
    assert capsys.readouterr().err == f"{path}: it is not a regular file\n"


def test_a_configuration_that_is_too_long_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "config.json"
    path.write_bytes(b" " * (MAX_DOCUMENT_BYTES + 1))
    assert scan.run(path, tmp_path) == scan.EXIT_CONFIG
    assert f"it is longer than {MAX_DOCUMENT_BYTES:,} bytes" in capsys.readouterr().err


def test_a_link_to_a_configuration_is_followed(host: HostTreeBuilder, tmp_path: Path):
    link = tmp_path / "link.json"
    link.symlink_to(config(tmp_path, {"name": "example.com/x", "devices": [{"simulated": {"count": 1}}]}).name)
    assert scan.run(link, host.root) == 0


def nothing(entry: str, source: str, message: str, *, number: int = 0) -> dict[str, str]:
    return {
        "id": f"devices[{number}]",
        "source": source,
        "entry": f"example.com/{entry}",
        "reason": "NothingFound",
        "message": f"devices[{number}]: {message}",
    }


def test_an_entry_that_finds_nothing_says_where_it_has_looked_for_each_source(host: HostTreeBuilder):
    host.obj("devices/virtual/misc/kvm", "misc", devname="kvm")
    misc = {"sysfs": {"subsystem": "misc", "names": ["kwm", "kvn*"]}}
    nowhere = {"files": {"paths": ["/dev/nothere*", "/dev/neither"]}}
    entries = [
        {"name": "example.com/a", "devices": [misc, nowhere]},
        {"name": "example.com/b", "devices": [nowhere, {"sysfs": {"subsystem": "misc"}}]},
        {"name": "example.com/c", "devices": [{"sysfs": {"subsystem": "no_such_class"}}]},
    ]
    assert scan.scan_json(document(*entries), host.roots)["excluded"] == [
        nothing("a", "sysfs", "misc has no device named kwm or kvn*: did you mean kvm?"),
        nothing("a", "files", "no device file matches /dev/nothere* or /dev/neither", number=1),
        nothing("c", "sysfs", "nothing in /sys/class/no_such_class or /sys/bus/no_such_class/devices: "
                "is the name right?"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"sysfs": {"subsystem": "video4linus"}}, "did you mean video4linux?"),
        ({"sysfs": {"subsystem": "video4linux", "names": ["vidoe0"]}}, "did you mean video0?"),
        ({"sysfs": {"subsystem": "empty"}}, "no device in /sys/class/empty"),
        ({"files": {"paths": ["/dev/kvmm"]}}, "did you mean /dev/kvm?"),
        ({"files": {"paths": ["/dev/snnd/*", "/dev/nowhere"]}}, "did you mean /dev/snd?"),
        ({"pci": {"ids": ["10de:1eb9"]}}, "has ids 10de:1eb9: did you mean 10de:1eb8?"),
        ({"pci": {"ids": ["10de:*"], "classes": ["0200"]}}, "with ids 10de:* has classes 0200"),
        ({"pci": {"ids": ["10de:*"], "drivers": ["nvidai"]}}, "has drivers nvidai: did you mean nvidia?"),
        ({"pci": {"addresses": ["0000:3c:00.0"]}}, "did you mean 0000:3b:00.0?"),
    ],
)
def test_an_entry_that_finds_nothing_says_which_name_may_be_meant(
    host: HostTreeBuilder, source: dict[str, Any], told: str
):
    host.obj("devices/virtual/misc/kvm", "misc", devname="kvm")
    host.obj("devices/virtual/video4linux/video0", "video4linux", devname="video0")
    host.node("snd/timer")
    host.pci("0000:3b:00.0", "10de:1eb8", pci_class="030200", driver="nvidia")
    host.pci("0000:00:01.0", "8086:1521", pci_class="020000")
    (host.root / "sys/class/empty").mkdir()
    (left_out,) = scan.scan_json(document({"name": "example.com/a", "devices": [source]}), host.roots)["excluded"]
    assert left_out["reason"] == "NothingFound"
    assert told in left_out["message"]


def test_an_empty_tree_gives_an_empty_scan(tmp_path: Path):
    entries = [
        {"name": f"example.com/{i}", "devices": [source]}
        for i, source in enumerate([{"pci": {}}, {"sysfs": {"subsystem": "misc"}}, {"files": {"paths": ["/dev/*"]}}])
    ]
    found = scan.scan_json(document(*entries), Roots.below(tmp_path))
    assert sorted(found.pop("health")) == ["example.com/0", "example.com/1", "example.com/2"]
    assert found == {
        "devices": [],
        "excluded": [
            nothing("0", "pci", "this node has no PCI functions"),
            nothing("1", "sysfs", "nothing in /sys/class/misc or /sys/bus/misc/devices: is the name right?"),
            nothing("2", "files", "no device file matches /dev/*"),
        ],
        "refused": {},
        "notes": {},
        "errors": [],
    }


REAL = Scanner(Roots.below(Path("/")))


def test_the_node_null_of_this_machine_is_found_with_its_sysfs_object():
    findings = REAL.scan(document({"name": "example.com/null", "devices": [{"files": {"paths": ["/dev/null"]}}]}))
    (device,) = findings.by_entry[0][0]
    assert device.sysfs_path == "devices/virtual/mem/null"
    assert device.nodes == ("/dev/null",)
    assert device.attributes == {"name": "null", "path": "/dev/null", "subsystem": "mem"}


def test_a_node_made_by_hand_is_a_device_of_its_own(tmp_path: Path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "sys").symlink_to("/sys")
    for name in ("null", "unit0", "unit1"):
        os.mknod(tmp_path / "dev" / name, 0o020666, os.makedev(1, 3))
    scanned = scan.scan_json(
        document({"name": "example.com/unit", "devices": [{"files": {"paths": ["/dev/unit?", "/dev/null"]}}]}),
        Roots.below(tmp_path),
    )
    assert {d["id"]: d["hardware"] for d in scanned["devices"]} == {
        "/dev/null": ["devices/virtual/mem/null"],
        "/dev/unit0": ["files:/dev/unit0"],
        "/dev/unit1": ["files:/dev/unit1"],
    }


def test_every_misc_device_of_this_machine_has_its_own_node():
    findings = REAL.scan(document({"name": "example.com/misc", "devices": [{"sysfs": {"subsystem": "misc"}}]}))
    devices = findings.by_entry[0][0]
    assert {d.name for d in devices} == {p.name for p in Path("/sys/class/misc").iterdir()}
    for device in devices:
        for node in device.nodes:
            number = Path(node).stat().st_rdev
            back = Path(f"/sys/dev/char/{os.major(number)}:{os.minor(number)}").resolve()
            assert back == Path("/sys") / (device.sysfs_path or "-")


def test_hardware_is_there_if_its_path_is_and_what_has_no_path_always_is(host: HostTreeBuilder):
    host.obj("devices/virtual/misc/kvm", "misc", devname="kvm")
    scanner = Scanner(Roots.below(host.root))
    names = [
        "devices/virtual/misc/kvm",
        "devices/virtual/misc/gone",
        "files:/dev/kvm",
        "files:/dev/gone",
        "simulated:3",
    ]
    assert scanner.still_there(names) == {"devices/virtual/misc/kvm", "files:/dev/kvm", "simulated:3"}


def test_a_devicepluginconfig_is_sent_to_the_command_that_takes_it(
    host: HostTreeBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "config.json"
    for text in ('{"kind": "DevicePluginConfig", "apiVersion": "device-operator.io/v1alpha1"}', "kind: x"):
        path.write_text(text)
        assert scan.run(path, host.root) == 2
        assert "kubectl devices explain -f FILE" in capsys.readouterr().err
