"""`kubectl devices explain`: which object and pool are meant, the scan of a tree, and the pod that scans a node."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from device_agent.contract.document import parse
from device_operator.render.manifests import RenderSettings, render
from device_operator.spec.model import ConfigRef
from kubectl_devices import tree
from kubectl_devices.cluster import node_scan
from kubectl_devices.cluster.api import Api
from kubectl_devices.cluster.operator import Installation
from kubectl_devices.errors import CliError, UsageError
from kubectl_devices.model import explanation, scan_pod, specs
from unit.discovery.tree import HostTreeBuilder

KVM = {"name": "example.com/kvm", "devices": [{"files": {"paths": ["/dev/kvm"]}}]}
NIC = {
    "name": "example.com/nic",
    "devices": [{"pci": {"ids": ["1af4:1041"]}}],
    "exclude": [{"attribute": "numaNode", "values": ["1"]}],
}
GPU = {"name": "nvidia.com/gpu", "preset": "nvidia-gpu-cdi"}
EDGE = {"name": "edge", "nodeSelector": {"hardware": "edge"}}
LAB = {"name": "lab", "nodeSelector": {"hardware": "lab"}}


def config(*resources: Any, name: str = "lab", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name},
        "spec": {"resources": list(resources or (KVM,)), **spec},
    }


def node(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux", **labels}}}


def test_the_objects_of_a_file_are_found_in_lists_and_beside_other_kinds():
    found = list(specs.configs([{"kind": "Pod"}, {"kind": "List", "items": [config(name="a")]}, config(name="b")]))
    assert specs.chosen(found, "b", source="f")["metadata"]["name"] == "b"
    for name in ("", "c"):
        with pytest.raises(UsageError):
            specs.chosen(found, name, source="f")
    with pytest.raises(UsageError):
        list(specs.configs([{**config(), "apiVersion": "v1"}]))


def test_the_pool_is_the_named_one_or_the_one_of_the_node():
    raw = config(nodePools=[EDGE, LAB])
    assert specs.wanted(raw, node=node(hardware="lab")).pool.name == "lab"
    assert specs.wanted(raw, pool="edge", node=node(hardware="lab")).pool.name == "edge"
    for arguments in ({}, {"node": node()}, {"pool": "none"}):
        with pytest.raises(UsageError):
            specs.wanted(raw, **arguments)


def test_every_mistake_of_a_spec_is_told():
    with pytest.raises(UsageError) as told:
        specs.wanted(config({**KVM, "unitt": "x"}, pausd=True))
    assert "unitt" in str(told.value)
    assert "pausd" in str(told.value)


def test_a_tree_shows_what_is_selected_and_why_the_rest_is_not(host: HostTreeBuilder):
    host.node("kvm")
    host.pci("0000:00:03.0", "1af4:1041", numa=0)
    host.pci("0000:00:04.0", "1af4:1041", numa=1)
    document, lost = specs.without_drivers(specs.wanted(config(GPU, KVM, NIC)).document)
    assert lost == ("nvidia.com/gpu",)
    scan = tree.scan(host.root, document)
    assert [row[:2] for row in explanation.offered(scan).rows] == [
        ("example.com/kvm", "/dev/kvm"),
        ("example.com/nic", "0000:00:03.0"),
    ]
    (row,) = explanation.left_out(scan).rows
    assert row[:3] == ("example.com/nic", "0000:00:04.0", "Excluded")


def test_a_folder_that_is_no_tree_is_a_mistake(tmp_path: Path):
    with pytest.raises(UsageError):
        tree.scan(tmp_path, specs.wanted(config()).document)


@pytest.mark.parametrize(
    "agent",
    [{}, {"driverAccess": {"driverRoot": "/run/nvidia/driver"}}, {"driverAccess": {"runtimeClass": "nvidia"}}],
    ids=["plain", "driver root", "runtime class"],
)
def test_the_pod_that_scans_has_the_rights_of_an_agent_and_no_more(agent: dict[str, Any]):
    wanted = specs.wanted(config(GPU, agent=agent))
    settings = RenderSettings(namespace="ns", agent_image="example.com/agent:1", service_account="agent")
    daemonset = next(m for m in render(ConfigRef("lab", "1"), wanted.spec, settings) if m.kind == "DaemonSet")
    like = daemonset.body["spec"]["template"]["spec"]
    spec = made(wanted)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec.get("runtimeClassName") == like.get("runtimeClassName")
    assert spec["securityContext"] == like["securityContext"]
    (container,), (agents,) = spec["containers"], like["containers"]
    privileged = agents["securityContext"].pop("privileged", False)
    assert container["securityContext"].pop("privileged", False) == privileged
    assert container["securityContext"] == agents["securityContext"]
    assert {m["mountPath"] for m in container["volumeMounts"]} <= {m["mountPath"] for m in agents["volumeMounts"]}
    assert not any("kubelet" in str(v.get("hostPath")) for v in spec["volumes"])


def made(wanted: specs.Wanted) -> dict[str, Any]:
    return scan_pod.pod(
        name="device-scan-1",
        node="n1",
        namespace="ns",
        image="example.com/agent:1",
        agent=wanted.pool.agent,
        document=wanted.document,
        selinux_type="container_device_plugin_t",
    )


class FakeServer:
    """Answers as the API server does while a pod goes through `statuses`; the last one stays."""

    def __init__(self, *statuses: dict[str, Any], log: str = "") -> None:
        self.statuses = list(statuses)
        self.log = log
        self.objects: dict[str, Any] = {}

    def __call__(self, method: str, path: str, **request: Any) -> tuple[int, bytes, str]:
        name = path.rpartition("/")[2]
        if method == "POST":
            body = request["body"]
            self.objects[f"{path}/{body['metadata']['name']}"] = body
            return 201, json.dumps({**body, "metadata": {**body["metadata"], "uid": "u-1"}}).encode(), ""
        if method == "DELETE":
            return (200, b"{}", "") if self.objects.pop(path, None) else (404, b"{}", "")
        if name == "log":
            return 200, self.log.encode(), ""
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return 200, json.dumps({**self.objects[path], "status": status}).encode(), ""


def look(server: FakeServer, created: list[Mapping[str, Any]]) -> dict[str, Any]:
    wanted = specs.wanted(config())

    def config_map(pod: dict[str, Any]) -> dict[str, Any]:
        created.append(scan_pod.config_map(pod, wanted.document))
        return dict(created[-1])

    return node_scan.scan(Api(server), made(wanted), config_map, timeout=60, sleep=lambda _: None)


def test_a_node_is_scanned_by_a_pod_that_is_gone_afterwards():
    created: list[Mapping[str, Any]] = []
    server = FakeServer({}, {"phase": "Running"}, {"phase": "Succeeded"}, log='{"devices": []}')
    assert look(server, created) == {"devices": []}
    assert server.objects == {}
    (document,) = created[0]["data"].values()
    assert [r.name for r in parse(document).resources] == ["example.com/kvm"]
    assert created[0]["metadata"]["ownerReferences"][0]["uid"] == "u-1"


@pytest.mark.parametrize(
    ("status", "log", "fact"),
    [
        ({"phase": "Failed"}, "config.json: it is too long", "too long"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "", "DeadlineExceeded"),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "",
            "ErrImagePull",
        ),
        ({"phase": "Succeeded"}, "no JSON", "no JSON"),
    ],
)
def test_a_scan_that_fails_says_why_and_leaves_nothing(status: dict[str, Any], log: str, fact: str):
    server = FakeServer(status, log=log)
    with pytest.raises(CliError, match=fact):
        look(server, [])
    assert server.objects == {}


FULL = {
    **KVM,
    "inject": {
        "deviceNodes": [{"own": "kvm", "containerPath": "/dev/x{position}", "permissions": "r", "env": "X{position}"}],
        "mounts": [{"hostPath": "/sys/class", "containerPath": "/opt/c"}],
        "env": [{"name": "A-1Q", "value": "{{x}}{name}", "counts": [1, 2]}, {"name": "B", "value": "{position}"}],
        "annotations": [{"name": "example.com/path", "value": "{path}"}],
        "cdiDevices": ["vendor.com/x={name}"],
    },
    "health": {"unhealthyWhen": [{"attribute": "attr.state", "values": ["bad", "dead*"]}], "intervalSeconds": 5},
}


def test_all_that_a_container_gets_and_every_health_check_is_shown(host: HostTreeBuilder):
    host.node("kvm")
    host.write("class/kvm/x", "")
    document = specs.wanted(config(FULL), written=True).document
    scan = tree.scan(host.root, document)
    assert [row[2:] for row in explanation.given(scan).rows] == [
        ("node", "/dev/kvm as /dev/x{position} (r)"),
        ("mount", "/sys/class as /opt/c (read-only)"),
        ("env", "A-1Q={x}kvm (requests of 1 or 2 alone)"),
        ("env", "B={position}"),
        ("env", "X{position}=/dev/x{position}"),
        ("annotation", "example.com/path=/dev/kvm"),
        ("CDI", "vendor.com/x=kvm"),
    ]
    _, (entry, check) = explanation.checks(document).rows
    assert entry == "example.com/kvm"
    assert "attr.state is bad or dead*" in check
    assert "every 5 s" in check
    assert any("{position}" in line for line in explanation.remarks(scan))
    assert scan["health"]["example.com/kvm"]["intervalSeconds"] == 5
    json.dumps(scan)


def test_a_scan_of_an_older_agent_is_shown_as_far_as_it_goes():
    device = {"resource": "a.b/c", "id": "1", "nodes": ["/dev/a"]}
    scan = {"devices": [device], "refused": {}, "notes": {}, "errors": []}
    assert explanation.given(scan).rows == ()
    assert list(explanation.remarks(scan)) == []


def test_a_file_is_refused_for_what_the_api_server_refuses():
    raw = config({**KVM, "maxDevices": 0})
    with pytest.raises(UsageError) as told:
        specs.wanted(raw, written=True)
    assert "spec.resources[0].maxDevices: 0" in str(told.value)
    assert specs.wanted(raw).document.resources[0].max_devices == 0


def test_a_setting_of_the_operator_is_a_variable_or_in_older_releases_a_flag():
    def flag(**container: Any) -> str:
        deployment = {"spec": {"template": {"spec": {"containers": [container]}}}}
        return Installation("ns", (deployment,)).flag("agent-image", "none")

    assert flag(env=[{"name": "DEVICE_OPERATOR_AGENT_IMAGE", "value": "a:1"}]) == "a:1"
    assert flag(args=["run", "--agent-image=b:1"]) == "b:1"
    assert flag(env=[{"name": "OTHER", "valueFrom": {}}], args=["run"]) == "none"
