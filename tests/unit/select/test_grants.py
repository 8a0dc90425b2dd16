"""What a unit adds to a container."""

import os
from typing import Any

import pytest
from device_agent.contract.template import parse_template
from device_agent.select.found import FoundDevice
from device_agent.select.unit import MountGrant, NodeGrant, Unit
from unit.select.finds import entry, pci, selection, sysfs

TTY = sysfs("ttyUSB0", nodes=["/dev/ttyUSB0"], usb__serial="A{1}", usb__port="1-2", index="0")


def unit(
    *finds: FoundDevice,
    inject: dict[str, Any],
    missing: tuple[str, ...] = (),
    gone: tuple[str, ...] = (),
    **fields: Any,
) -> Unit:
    selected = selection(
        (entry("x", finds[0].source, inject=inject, **fields), [finds]),
        exists=lambda path: path not in missing,
        gone=gone,
    )
    assert selected.excluded == ()
    (one,) = selected.units
    return one


def left_out(*finds: FoundDevice, inject: dict[str, Any], **fields: Any) -> tuple[str, str]:
    selected = selection((entry("x", finds[0].source, inject=inject, **fields), [finds]))
    assert selected.units == ()
    return selected.excluded[0].reason, selected.excluded[0].message


def test_own_nodes_come_at_their_host_path():
    assert unit(TTY, inject={}).grants.nodes == (NodeGrant("/dev/ttyUSB0", "/dev/ttyUSB0", "rw"),)


GPU = pci("0000:01:00.0", nodes=["/dev/dri/card0", "/dev/dri/renderD128", "/dev/kfd0"])


@pytest.mark.parametrize(
    ("own_nodes", "grants"),
    [
        (
            "All",
            {
                "/dev/dri/card0": ("/dev/dri/card0", "rw"),
                "/dev/gpu0": ("/dev/dri/renderD128", "r"),
                "/dev/kfd0": ("/dev/kfd0", "rw"),
            },
        ),
        ("Listed", {"/dev/gpu0": ("/dev/dri/renderD128", "r")}),
    ],
)
def test_an_own_entry_selects_renames_and_restricts(own_nodes: str, grants: dict[str, tuple[str, str]]):
    inject = {
        "ownNodes": own_nodes,
        "deviceNodes": [
            {"own": "dri/render*", "containerPath": "/dev/gpu{position}", "permissions": "r", "env": "GPU{position}"}
        ],
    }
    nodes = unit(GPU, inject=inject).grants.nodes
    assert {n.container_path.replace("{position}", "0"): (n.host_path, n.permissions) for n in nodes} == grants
    assert [n.env for n in nodes if n.env] == ["GPU{position}"]


def test_own_nodes_none_gives_only_companions():
    inject = {"ownNodes": "None", "deviceNodes": [{"hostPath": "/dev/null"}], "cdiDevices": ["v.com/gpu={name}"]}
    found = unit(GPU, inject=inject).grants
    assert [n.host_path for n in found.nodes] == ["/dev/null"]
    assert found.cdi_devices == ("v.com/gpu=0000:01:00.0",)


def test_an_own_entry_that_matches_no_node_is_a_problem_unless_it_is_optional():
    inject = {"deviceNodes": [{"own": "video*"}]}
    assert unit(TTY, inject=inject).problem == (
        "DeviceNodeMissing",
        "inject.deviceNodes[0]: no own node matches video*; there is /dev/ttyUSB0",
    )
    inject["deviceNodes"][0]["optional"] = True  # type: ignore[assignment]
    assert unit(TTY, inject=inject).problem is None


def test_two_nodes_of_one_device_at_one_container_path_leave_it_out():
    both = sysfs("x", nodes=["/dev/ttyUSB0", "/dev/ttyUSB1"])
    inject = {"deviceNodes": [{"own": "tty*", "containerPath": "/dev/modem"}]}
    reason, message = left_out(both, inject=inject, sharing={"maxPerContainer": 1})
    assert reason == "ContainerPathConflict"
    assert "/dev/ttyUSB0 and /dev/ttyUSB1" in message


@pytest.mark.parametrize(
    ("optional", "missing", "granted", "problem"),
    [
        (False, False, True, ""),
        (True, False, True, ""),
        (True, True, False, ""),
        (False, True, True, "CompanionMissing"),
    ],
)
def test_a_companion_that_is_missing_makes_the_unit_unhealthy_unless_it_is_optional(
    *, optional: bool, missing: bool, granted: bool, problem: str
):
    inject = {"deviceNodes": [{"hostPath": "/dev/net/tun", "optional": optional, "permissions": "r"}]}
    found = unit(TTY, inject=inject, missing=("/dev/net/tun",) if missing else ())
    assert (NodeGrant("/dev/net/tun", "/dev/net/tun", "r") in found.grants.nodes) == granted
    reason, text = found.problem or ("", "")
    assert reason == problem
    assert not problem or "/dev/net/tun does not exist on the node" in text


@pytest.mark.parametrize("optional", [True, False])
def test_a_mount_of_a_path_that_is_missing_is_left_out_or_keeps_the_device_back(optional: bool):  # noqa: FBT001
    inject = {
        "mounts": [
            {"hostPath": "/sys/class/{name}", "containerPath": "/a/{name}", "optional": optional},
            {"hostPath": "/opt/fw", "containerPath": "/opt/fw"},
        ]
    }
    found = unit(TTY, inject=inject, gone=("/sys/class/ttyUSB0",))
    assert [mount.host_path for mount in found.grants.mounts] == ["/opt/fw"]
    reason, text = found.problem or ("", "")
    assert reason == ("" if optional else "CompanionMissing")
    assert optional or "/sys/class/ttyUSB0" in text
    assert unit(TTY, inject=inject).problem is None


@pytest.mark.parametrize(
    ("needs", "problem"),
    [(["tty*"], False), (["tty*", "dri/renderD*"], True), (["dri/renderD*"], True), (["ttyUSB0"], False)],
)
def test_a_device_without_an_own_node_that_the_entry_needs_is_not_offered(needs: list[str], *, problem: bool):
    inject = {"deviceNodes": [{"hostPath": "/dev/kfd"}]}
    found = unit(TTY, inject=inject, needs={"ownNodes": needs})
    assert (found.problem is not None) == problem
    if found.problem:
        assert found.problem[0] == "DeviceNodeMissing"
        assert "dri/renderD*" in found.problem[1]
        assert "/dev/ttyUSB0" in found.problem[1]


def test_only_rendered_companions_are_checked_for_existence():
    asked: list[str] = []
    inject = {
        "deviceNodes": [{"hostPath": "/dev/net/x{index}"}, {"hostPath": "/dev/c"}, {"own": "tty*"}],
        "mounts": [{"hostPath": "/opt", "containerPath": "/opt"}],
    }
    selection((entry("x", "sysfs", inject=inject), [[TTY]]), exists=lambda path: not asked.append(path))
    assert asked == ["/dev/net/x0", "/dev/c"]


def test_texts_keep_the_position_and_their_braces_for_the_second_rendering():
    inject = {
        "env": [{"name": "DEV{position}", "value": '{{"id": "{usb.serial}", "n": {position}}}'}],
        "annotations": [{"name": "example.com/x", "value": "{name}"}],
        "cdiDevices": ["vendor.com/tty={usb.port}"],
    }
    grants = unit(TTY, inject=inject).grants
    ((index, name, value),) = grants.env
    assert (index, parse_template(name).render({}, position=3)) == (0, "DEV3")
    assert parse_template(value).render({}, position=3) == '{"id": "A{1}", "n": 3}'
    assert grants.annotations == (("example.com/x", "ttyUSB0"),)
    assert grants.cdi_devices == ("vendor.com/tty=1-2",)


def test_a_device_that_lacks_an_attribute_is_left_out_unless_the_variable_is_optional():
    inject = {"env": [{"name": "A", "value": "a"}, {"name": "S", "value": "{vfIndex}"}]}
    assert left_out(TTY, inject=inject) == (
        "MissingAttribute",
        "inject.env[1] (S) needs vfIndex, which the device does not have",
    )
    inject["env"][1]["optional"] = True  # type: ignore[assignment]
    assert unit(TTY, inject=inject).grants.env == ((0, "A", "a"),)


def test_equal_values_of_a_units_members_come_once():
    parts = [pci(f"0000:01:00.{i}", numaNode="0") for i in (1, 0)] + [pci("0000:01:00.2")]
    inject = {
        "env": [
            {"name": "ADDRESSES", "value": "{pci.address}"},
            {"name": "NUMA", "value": "{numaNode}"},
            {"name": "C", "value": "c"},
        ],
        "mounts": [{"hostPath": "/run/{pci.address}", "containerPath": "/run/{pci.address}", "readOnly": False}],
    }
    grants = unit(*parts, inject=inject, unit="node").grants
    assert grants.env == (
        (0, "ADDRESSES", "0000:01:00.0"),
        (0, "ADDRESSES", "0000:01:00.1"),
        (0, "ADDRESSES", "0000:01:00.2"),
        (1, "NUMA", "0"),
        (2, "C", "c"),
    )
    assert MountGrant("/run/0000:01:00.1", "/run/0000:01:00.1", read_only=False) in grants.mounts


@pytest.mark.parametrize("value", ["..", ".", "a/b", "../x", "a b", "a\u00e4", "{position}", "a\\b", "$(x)"])
@pytest.mark.parametrize(
    "inject",
    [
        {"deviceNodes": [{"hostPath": "/dev/x/{usb.serial}"}]},
        {"deviceNodes": [{"own": "tty*", "containerPath": "/dev/{usb.serial}"}]},
        {"mounts": [{"hostPath": "/opt/{usb.serial}", "containerPath": "/opt"}]},
        {"mounts": [{"hostPath": "/opt", "containerPath": "/opt/a{usb.serial}"}]},
    ],
)
def test_an_unsafe_value_is_refused_in_a_path(value: str, inject: dict[str, Any]):
    reason, message = left_out(sysfs("ttyUSB0", nodes=["/dev/ttyUSB0"], usb__serial=value), inject=inject)
    assert reason == "UnsafeValue"
    assert repr(value) in message


def test_literals_and_values_together_cannot_leave_the_directory():
    inject = {"mounts": [{"hostPath": "/opt/.{usb.serial}", "containerPath": "/opt/x"}]}
    assert unit(sysfs("t", usb__serial=".x"), inject=inject).grants.mounts[0].host_path == "/opt/..x"


@pytest.mark.parametrize("value", ["a b", "-a", "a/b", "a\u00e4", "a=b"])
def test_an_invalid_cdi_name_leaves_the_device_out_at_the_scan(value: str):
    reason, message = left_out(sysfs("t", usb__serial=value), inject={"cdiDevices": ["v.com/c={usb.serial}"]})
    assert reason == "UnsafeValue"
    assert repr("v.com/c=" + value) in message


def test_an_equals_sign_is_refused_in_a_variables_name():
    inject = {"env": [{"name": "S_{usb.serial}", "value": "x"}]}
    assert left_out(sysfs("t", usb__serial="LD_PRELOAD=/x"), inject=inject)[0] == "UnsafeValue"


@pytest.mark.parametrize(
    "inject", [{}, {"env": [{"name": "A", "value": "{name}"}]}, {"cdiDevices": ["v.com/c={name}"]}, {"ownNodes": "All"}]
)
def test_a_device_whose_name_is_not_utf8_is_left_out(inject: dict[str, Any]):
    name = os.fsdecode(b"ttyUSB\xff")
    reason, message = left_out(sysfs(name, nodes=[f"/dev/{name}"]), inject=inject)
    assert reason == "UnsafeValue"
    assert message.startswith("'ttyUSB\\udcff' is not UTF-8")


def test_the_devices_own_problem_is_reported_before_a_companions():
    broken = FoundDevice("sysfs", "t", "devices/t", {"name": "t"}, problem=("DeviceNodeMissing", "/dev/t is gone"))
    found = unit(broken, inject={"deviceNodes": [{"hostPath": "/dev/nope"}]}, missing=("/dev/nope",))
    assert found.problem == ("DeviceNodeMissing", "/dev/t is gone")
