"""The checked-in messages are what the checked-in compiler makes of the .proto files, with the kubelet's wire form."""

import subprocess
from pathlib import Path

import pytest
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.kubelet.proto import podresources_pb2 as pr

ROOT = Path(__file__).resolve().parents[2]
PROTO = Path("device_agent/kubelet/proto")


def test_regenerating_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([str(ROOT / "plugin_agent" / "regenerate.sh"), str(tmp_path)], check=True)
    made = {p.name: p.read_text() for p in (tmp_path / PROTO).iterdir()}
    kept = {p.name: p.read_text() for p in (ROOT / "plugin_agent" / PROTO).glob("*_pb2.py*")}
    assert made == kept
    assert len(kept) == 4


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        # field numbers and types on the wire, written by hand from the kubelet's api.proto
        (dp.RegisterRequest(version="v1beta1", endpoint="e", resource_name="r"), "0a0776316265746131120165 1a0172"),
        (dp.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True), "0801 1001"),
        (
            dp.Device(ID="d", health="Healthy", topology=dp.TopologyInfo(nodes=[dp.NUMANode(ID=1)])),
            "0a0164 12074865616c746879 1a04 0a02 0801",
        ),
        (
            dp.ContainerAllocateResponse(
                envs={"k": "v"},
                mounts=[dp.Mount(container_path="c", host_path="h", read_only=True)],
                devices=[dp.DeviceSpec(container_path="c", host_path="h", permissions="rw")],
                annotations={"a": "b"},
                cdi_devices=[dp.CDIDevice(name="n")],
            ),
            "0a06 0a016b 120176  1208 0a0163 120168 1801  1a0a 0a0163 120168 1a027277  2206 0a0161 120162  2a03 0a016e",
        ),
        (
            dp.ContainerPreferredAllocationRequest(
                available_deviceIDs=["a"], must_include_deviceIDs=["m"], allocation_size=2
            ),
            "0a0161 12016d 1802",
        ),
        (pr.ContainerDevices(resource_name="r", device_ids=["a", "b"]), "0a0172 120161 120162"),
        (
            pr.PodResources(name="p", namespace="n", containers=[pr.ContainerResources(name="c")]),
            "0a0170 12016e 1a03 0a0163",
        ),
        (pr.DynamicResource(claim_name="c", claim_namespace="n"), "120163 1a016e"),
    ],
)
def test_messages_have_the_kubelets_wire_form(message: object, wire: str) -> None:
    assert message.SerializeToString(deterministic=True).hex() == wire.replace(" ", "")


def test_packages_are_the_kubelets_and_paths_are_ours() -> None:
    assert dp.DESCRIPTOR.package == "v1beta1"
    assert pr.DESCRIPTOR.package == "v1"
    assert all(d.name.startswith("device_agent/") for d in (dp.DESCRIPTOR, pr.DESCRIPTOR))
    assert set(dp.DESCRIPTOR.services_by_name) == {"Registration", "DevicePlugin"}
    assert set(pr.DESCRIPTOR.services_by_name) == {"PodResourcesLister"}
