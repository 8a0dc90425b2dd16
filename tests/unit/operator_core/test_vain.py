"""Values that can match nothing are refused with the right form, and no other value is."""

import fnmatch
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from device_operator.spec import catalogue, vain
from device_operator.spec.acceptance import rejection
from hypothesis import given
from hypothesis import strategies as st
from unit.operator_core.build import LAB, spec
from unit.operator_core.test_documented import SPECS

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
PCI = {"pci": {}}
USB = {"sysfs": {"subsystem": "tty"}}


def resource(*devices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "example.com/a", "devices": list(devices), **fields}


def included(source: dict[str, Any], attribute: str, value: str) -> dict[str, Any]:
    return resource({**source, "include": [{"attribute": attribute, "values": [value]}]})


def pci(field: str, value: str) -> dict[str, Any]:
    return resource({"pci": {field: [value]}})


def names(value: str) -> dict[str, Any]:
    return resource({"sysfs": {"subsystem": "block", "names": [value]}})


def env(value: str) -> dict[str, Any]:
    return resource(USB, inject={"env": [{"name": "A", "value": value}]})


@pytest.mark.parametrize(
    ("given", "where", "right"),
    [
        (pci("ids", "0x10de:0x1eb8"), "devices[0].pci.ids", "10de:1eb8"),
        (pci("ids", "0x10de:*"), "devices[0].pci.ids", "10de:*"),
        (pci("ids", "10de:1eb"), "devices[0].pci.ids", "10de:1eb*"),
        (pci("ids", "nvidia:*"), "devices[0].pci.ids", "vendor:device"),
        (pci("classes", "0x0300"), "devices[0].pci.classes", "0300"),
        (pci("classes", "03"), "devices[0].pci.classes", "03*"),
        (pci("addresses", "3b:00.0"), "devices[0].pci.addresses", "0000:3b:00.0"),
        (pci("addresses", "0000:3b:00.0#0-7"), "devices[0].pci.addresses", "with its domain"),
        (included(PCI, "pci.vendor", "0x8086"), "devices[0].include[0].values", "8086"),
        (included(PCI, "pci.class", "0302"), "devices[0].include[0].values", "0302*"),
        (included(USB, "usb.vendor", "046D"), "devices[0].include[0].values", "046d"),
        (included(PCI, "numaNode", "node0"), "devices[0].include[0].values", "decimal"),
        (included(PCI, "pf.netName", "enp0s0f0#0-7"), "devices[0].include[0].values", "[0-7]"),
        (names("loop[0-9]+"), "devices[0].sysfs.names", "'loop[0-9]*'"),
        (names(r"loop\d+"), "devices[0].sysfs.names", "loop[0-9]"),
        (names("^sda$"), "devices[0].sysfs.names", "'sda'"),
        (names("(sda|sdb)"), "devices[0].sysfs.names", "'sda'"),
        (resource({"files": {"paths": ["/dev/loop[0-9]+"]}}), "devices[0].files.paths", "/dev/loop[0-9]*"),
        (env("${path}"), "inject.env[0].value", "{path}"),
        (resource(PCI, exclude=[{"attribute": "pci.device", "values": ["0x1EB8"]}]), "exclude[0].values", "1eb8"),
    ],
)
def test_a_value_that_can_match_nothing_is_refused_with_the_right_form(given: dict[str, Any], where: str, right: str):
    refused = rejection(LAB, spec({"resources": [given]}), nodes=[], others=[], created=CREATED)
    assert refused is not None
    assert refused.reason == "InvalidSpec"
    assert refused.message.startswith(f"spec.resources[0].{where}: ")
    assert right in refused.message


def test_a_cordon_that_can_match_nothing_is_refused():
    cordon = [{"match": {"attribute": "pci.device", "values": ["0x1017"]}}]
    (problem,) = vain.problems(spec({"resources": [pci("ids", "10de:*")], "cordon": cordon}))
    assert problem.startswith("spec.cordon[0].match.values: ")


@pytest.mark.parametrize(
    "given",
    [
        pci("ids", "*"),
        pci("ids", "[18]0de:20b?"),
        pci("ids", "15b3:*"),
        pci("classes", "02*"),
        pci("classes", "030200"),
        pci("addresses", "10000:*"),
        pci("addresses", "0000:3b:00.[0-7]"),
        included(PCI, "pci.class", "0302*"),
        included(PCI, "attr.vendor", "0x8086"),
        included(USB, "usb.serial", "^A.B+|$"),
        names("loop[+]*"),
        names("card[0-9]*"),
        names("c1t0+x"),
        resource({"files": {"paths": [r"/dev/disk/by-id/a\x20b.*"]}}),
        env("${{path}} $HOME/{path}"),
    ],
)
def test_other_values_are_accepted(given: dict[str, Any]):
    assert vain.problems(spec({"resources": [given]})) == ()


@pytest.mark.parametrize("found", SPECS)
def test_specs_in_the_guides_have_no_such_value(found: dict[str, Any]):
    assert vain.problems(spec(found)) == ()


@pytest.mark.parametrize("preset", list(catalogue.presets()))
def test_presets_have_no_such_value(preset: str):
    assert vain.problems(spec({"resources": [{"name": "example.com/a", "preset": preset}]})) == ()


@given(
    st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{4}", fullmatch=True),
    st.lists(st.sampled_from(["*", "?", "[0-9a-f]", "[!0]", "[0-9]", "0", "f", ":", "x", "["]), max_size=8),
)
def test_a_glob_that_matches_a_value_is_never_refused(value: str, parts: list[str]):
    glob = "".join(parts)
    if re.fullmatch(fnmatch.translate(glob), value):
        assert vain._can_match(glob, "hhhh:hhhh")
