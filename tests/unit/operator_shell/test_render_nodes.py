"""`device-operator render --nodes`: what the operator would say of pools and objects that want the same node."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from device_operator.__main__ import main


def config(name: str, *pools: dict[str, Any], resource: str = "example.com/a") -> dict[str, Any]:
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name},
        "spec": {
            "resources": [{"name": resource, "devices": [{"simulated": {"count": 1}}]}],
            **({"nodePools": list(pools)} if pools else {}),
        },
    }


def pool(name: str, **selector: str) -> dict[str, Any]:
    return {"name": name, "nodeSelector": selector}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", **labels}},
    }


NODES = [node("n1", hardware="edge", zone="a"), node("n2", hardware="lab"), node("n3", hardware="lab", zone="a")]
EDGE, LAB, ZONE = pool("edge", hardware="edge"), pool("lab", hardware="lab"), pool("zone", zone="a")


class Files:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def render(self, *configs: dict[str, Any], nodes: str) -> tuple[int, str, str]:
        """(status, stdout, stderr)"""
        file, of_nodes = self.folder / "configs.yaml", self.folder / "nodes.yaml"
        file.write_text(yaml.safe_dump_all(configs))
        of_nodes.write_text(nodes)
        status = main(["render", "-f", str(file), "--nodes", str(of_nodes), "--agent-image=example.com/agent:1"])
        return (status, *self._capsys.readouterr())


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def listed(kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "items": NODES}


@pytest.mark.parametrize(
    "nodes", [yaml.safe_dump_all(NODES), yaml.safe_dump(listed()), json.dumps(listed()), json.dumps(listed("NodeList"))]
)
def test_pools_that_overlap_are_refused_with_their_nodes(files: Files, nodes: str) -> None:
    status, out, err = files.render(config("one", EDGE, LAB, ZONE), nodes=nodes)
    assert (status, out) == (2, "")
    assert "PoolOverlap" in err
    for pair, where in (("pools edge and zone", "n1"), ("pools lab and zone", "n3")):
        assert f"{pair} both match node {where}" in err or f"{pair} both match {where}" in err
    assert "n2" not in err


def test_objects_of_a_file_that_serve_one_name_on_a_node_are_refused(files: Files) -> None:
    nodes = yaml.safe_dump_all(NODES)
    status, out, err = files.render(config("one", LAB), config("two", ZONE), config("three", EDGE), nodes=nodes)
    assert (status, out) == (2, "")
    conflicts = [line for line in err.splitlines() if "ResourceConflict" in line]
    assert ["document 2: two" in conflicts[0], "document 3: three" in conflicts[1]] == [True, True]
    assert "DevicePluginConfig one serves example.com/a" in conflicts[0]
    assert "n3" in conflicts[0]
    assert "DevicePluginConfig two serves example.com/a" in conflicts[1]
    assert "n1" in conflicts[1]


def test_without_a_common_name_or_node_the_manifests_are_printed(files: Files) -> None:
    other = config("two", ZONE, resource="example.com/b")
    status, out, err = files.render(config("one", EDGE, LAB), other, nodes=yaml.safe_dump_all(NODES))
    assert (status, err) == (0, "")
    assert len(list(yaml.safe_load_all(out))) == 6


def test_a_pool_that_matches_no_node_is_said(files: Files) -> None:
    none = pool("far", hardware="Lab")
    status, _, err = files.render(config("one", none, LAB), nodes=yaml.safe_dump_all(NODES))
    assert status == 0
    (line,) = err.splitlines()
    assert "pool far matches none of the 3 nodes" in line
    wanted = config("one", {**none, "mayBeEmpty": True}, LAB)
    assert files.render(wanted, nodes=yaml.safe_dump_all(NODES))[2] == ""


@pytest.mark.parametrize(
    ("nodes", "part"),
    [
        ("", "no Node in it; write the file by: kubectl get nodes -o yaml"),
        ("kind: Pod", "document 1: kind 'Pod' is not Node"),
        ("kind: Node", "a Node needs metadata.name"),
        ("{kind: Node, metadata: {name: a, labels: [x]}}", "labels as an object"),
        ("{kind: List, items: 5}", "items of a List must be a list"),
        (yaml.safe_dump_all([NODES[0], NODES[0]]), "node n1 is in the file already"),
        ("{", "while parsing"),
    ],
)
def test_a_file_of_nodes_that_cannot_be_used_is_explained(files: Files, nodes: str, part: str) -> None:
    status, out, err = files.render(config("one"), nodes=nodes)
    assert (status, out) == (2, "")
    assert "nodes.yaml" in err
    assert part in err


def test_one_of_the_two_may_be_standard_input(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files.folder / "configs.yaml"
    file.write_text(yaml.safe_dump(config("one", LAB, ZONE)))
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump_all(NODES)))
    assert main(["render", "-f", str(file), "--nodes", "-"]) == 2
    assert "PoolOverlap" in capsys.readouterr().err
    assert main(["render", "-f", "-", "--nodes", "-"]) == 2
    assert "only one of them can be standard input" in capsys.readouterr().err
