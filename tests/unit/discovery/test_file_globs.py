"""`*` in the path of a sysfs file: one directory or file name may hold it, and exactly one file may match."""

from typing import Any

import pytest
from device_agent.contract import check
from device_agent.contract.document import Document, parse_resource
from device_agent.discovery.scanner import Scanner
from device_agent.select.selection import Selection, select
from unit.discovery.tree import HostTreeBuilder

VBNV = "attr.rom.u.*/VBNV"
ENTRY = {
    "name": "example.com/board",
    "devices": [{"sysfs": {"subsystem": "board"}}],
    "inject": {"env": [{"name": "MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q", "value": f"{{{VBNV}}}"}]},
}


def selected(host: HostTreeBuilder, **fields: Any) -> Selection:
    document = Document((parse_resource({**ENTRY, **fields}, path="spec.resources[0]"),))
    assert check.problems(document) == ()
    scanner = Scanner(host.roots)
    return select(document, scanner.scan(document), dev=scanner.device_nodes())


def board(host: HostTreeBuilder, **directories: str) -> None:
    path = host.obj("devices/platform/board0", "board", devname="board0")
    for name, value in directories.items():
        host.write(f"{path}/rom.{name.replace('_', '.')}/VBNV", value)


def test_the_one_file_that_matches_is_read(host: HostTreeBuilder):
    board(host, u_17="xilinx_u250", v_3="other")
    (unit,) = selected(host).units
    assert unit.attributes[VBNV] == "xilinx_u250"
    assert unit.grants.env == ((0, "MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q", "xilinx_u250"),)


@pytest.mark.parametrize("directories", [{}, {"v_1": "a"}, {"u_1": "a", "u_2": "b"}, {"u_1": "a", "u_2": "a"}])
def test_without_one_single_match_the_attribute_is_absent_and_the_message_says_why(
    host: HostTreeBuilder, directories: dict[str, str]
):
    board(host, **directories)
    selection = selected(host)
    assert selection.units == ()
    (excluded,) = selection.excluded
    assert VBNV in excluded.message
    assert "no file of the device matches, or more than one does" in excluded.message
    (unmatched,) = selected(host, inject={}, devices=[{**ENTRY["devices"][0], "include": [MATCH]}]).excluded  # type: ignore[index]
    assert "more than one does" in unmatched.message


MATCH = {"attribute": VBNV, "values": ["*"]}


def test_a_star_stands_for_no_slash_and_not_for_a_dotted_parent(host: HostTreeBuilder):
    board(host, u_17="xilinx_u250")
    for value in ("{attr.*/VBNV}", "{attr.rom.u.17/VB*}"):
        assert len(selected(host, inject={"env": [{"name": "A", "value": value}]}).units) == 1
    assert selected(host, inject={"env": [{"name": "A", "value": "{attr.*}"}]}).units == ()
