"""What each source finds in trees of the shapes that real hardware has."""

import os
from typing import Any

import pytest
from device_agent.contract.document import Document, parse_resource
from device_agent.discovery.scanner import Scanner
from device_agent.select.found import Findings, FoundDevice, Group
from unit.discovery.tree import ROOT, HostTreeBuilder


def scan(host: HostTreeBuilder, *devices: dict[str, Any], **fields: Any) -> Findings:
    resource = {"name": "example.com/dev", "devices": list(devices), **fields}
    return Scanner(host.roots).scan(Document((parse_resource(resource, path="r"),)))


def found(host: HostTreeBuilder, *devices: dict[str, Any], **fields: Any) -> dict[str, FoundDevice]:
    findings = scan(host, *devices, **fields)
    assert findings.errors == ()
    return {device.name: device for entry in findings.by_entry[0] for device in entry}


def test_mounts_are_missing_only_where_the_agent_can_see_it(host: HostTreeBuilder):
    host.write("class/infiniband/mlx5_0", "")
    host.node("shm/x")
    missing = Scanner(host.roots).device_nodes().missing
    for path in ("/sys/class/infiniband", "/dev/shm", "/dev/null", "/opt/fw", "/device/x"):
        assert not missing(path)
    for path in ("/sys/class/infiniband_verbs", "/dev/shm/y"):
        assert missing(path)


def test_a_virtio_function_has_its_own_attributes_and_the_nodes_below_it(host: HostTreeBuilder):
    function = host.pci("0000:00:02.0", "1af4:1042", pci_class="018000", driver="virtio-pci")
    virtio = host.obj(f"{function}/virtio1", "virtio", bus=True)
    host.bind(virtio, "virtio_blk", bus="virtio")
    host.obj(f"{virtio}/block/vda", "block", devname="vda", block=True)
    (disk,) = found(host, {"pci": {"ids": ["1af4:*"]}}).values()
    assert disk == FoundDevice(
        source="pci",
        name="0000:00:02.0",
        sysfs_path=function,
        attributes={
            "name": "0000:00:02.0",
            "subsystem": "pci",
            "driver": "virtio-pci",
            "path": "/dev/vda",
            "pci.address": "0000:00:02.0",
            "pci.vendor": "1af4",
            "pci.device": "1042",
            "pci.class": "018000",
            "pci.driver": "virtio-pci",
        },
        nodes=("/dev/vda",),
        shared_nodes=("/dev/vfio/vfio",),
        unit="pci.address",
        stable_name=True,
    )


@pytest.mark.parametrize(
    ("source", "addresses"),
    [
        ({}, ["0000:00:01.0", "0000:00:02.0", "0000:00:03.0"]),
        ({"ids": ["8086:*"]}, ["0000:00:01.0"]),
        ({"ids": ["8086:1521", "10de:20b?"]}, ["0000:00:01.0", "0000:00:02.0"]),
        ({"classes": ["0302"]}, ["0000:00:02.0"]),
        ({"classes": ["030200", "02*"]}, ["0000:00:01.0", "0000:00:02.0", "0000:00:03.0"]),
        ({"drivers": ["ig*"]}, ["0000:00:01.0"]),
        ({"drivers": ["*"]}, ["0000:00:01.0", "0000:00:02.0"]),
        ({"addresses": ["0000:00:0[13].0"]}, ["0000:00:01.0", "0000:00:03.0"]),
        ({"ids": ["8086:*"], "drivers": ["nvidia"]}, []),
    ],
)
def test_the_fields_of_a_pci_source_are_globs_and_all_must_match(
    host: HostTreeBuilder, source: dict[str, list[str]], addresses: list[str]
):
    host.pci("0000:00:01.0", "8086:1521", pci_class="020000", driver="igb")
    host.pci("0000:00:02.0", "10de:20b5", pci_class="030200", driver="nvidia")
    host.pci("0000:00:03.0", "15b3:1017", pci_class="020700")
    assert list(found(host, {"pci": source})) == addresses


def test_a_gpu_has_its_drm_nodes_and_the_bridge_above_has_none(host: HostTreeBuilder):
    bridge = host.pci("0000:00:01.0", "8086:460d", pci_class="060400", driver="pcieport")
    gpu = host.pci("0000:03:00.0", "1002:74a1", pci_class="038000", driver="amdgpu", numa=1, below=bridge)
    card = host.obj(f"{gpu}/drm/card0", "drm", devname="dri/card0")
    host.obj(f"{card}/card0-DP-1", "drm")
    host.obj(f"{gpu}/drm/renderD128", "drm", devname="dri/renderD128")
    devices = found(host, {"pci": {}})
    assert devices["0000:03:00.0"].nodes == ("/dev/dri/card0", "/dev/dri/renderD128")
    assert devices["0000:03:00.0"].numa_node == 1
    assert devices["0000:03:00.0"].attributes["numaNode"] == "1"
    assert devices["0000:00:01.0"].nodes == ()
    render = found(host, {"sysfs": {"subsystem": "drm", "names": ["renderD*"]}})["renderD128"]
    assert render.nodes == ("/dev/dri/renderD128",)
    assert render.attributes["driver"] == "amdgpu"
    assert render.attributes["index"] == "128"
    assert render.numa_node == 1


def test_a_function_without_a_driver_does_not_get_the_bridges_driver(host: HostTreeBuilder):
    bridge = host.pci("0000:00:01.0", "8086:460d", pci_class="060400", driver="pcieport", numa=0)
    host.pci("0000:03:00.0", "1002:74a1", below=bridge)
    device = found(host, {"pci": {"ids": ["1002:*"]}})["0000:03:00.0"]
    assert not {"driver", "pci.driver", "numaNode"} & set(device.attributes)
    assert device.numa_node is None


def test_a_virtual_function_knows_its_physical_one(host: HostTreeBuilder):
    port = host.pci("0000:00:02.0", "8086:2030", pci_class="060400", driver="pcieport")
    physical = host.pci("0000:3b:00.0", "15b3:1017", driver="mlx5_core", numa=0, below=port)
    for name in ("ens1f1", "ens1f0"):
        host.obj(f"{physical}/net/{name}", "net")
    host.write(f"{physical}/sriov_numvfs", "2\n")
    for i in (0, 1):
        host.virtual_function(physical, i, f"0000:3b:00.{i + 2}", "15b3:1018", driver="mlx5_core", numa=0)
    devices = found(
        host, {"pci": {"ids": ["15b3:1018"]}}, exclude=[{"attribute": "pf.attr.sriov_numvfs", "values": ["0"]}]
    )
    assert list(devices) == ["0000:3b:00.2", "0000:3b:00.3"]
    second = devices["0000:3b:00.3"].attributes
    assert {key: second.get(key) for key in second if key.startswith(("pf.", "vf"))} == {
        "vfIndex": "1",
        "pf.address": "0000:3b:00.0",
        "pf.vendor": "15b3",
        "pf.device": "1017",
        "pf.class": "020000",
        "pf.driver": "mlx5_core",
        "pf.netName": "ens1f0",
        "pf.numaNode": "0",
        "pf.attr.sriov_numvfs": "2",
    }
    assert "vfIndex" not in found(host, {"pci": {"ids": ["15b3:1017"]}})["0000:3b:00.0"].attributes


def test_a_function_on_vfio_has_its_groups_node_and_the_container(host: HostTreeBuilder):
    function = host.pci("0000:01:00.0", "10de:20b5", driver="vfio-pci", group=12)
    host.obj(f"{function}/vfio-dev/vfio0", "vfio-dev", devname="vfio/devices/vfio0")
    host.node("vfio/12")
    host.node("vfio/vfio")
    findings = scan(host, {"pci": {"ids": ["10de:*"]}})
    ((device,),) = findings.by_entry[0:1][0]
    assert device.nodes == ("/dev/vfio/12", "/dev/vfio/vfio")
    assert device.attributes["iommuGroup"] == "12"
    assert device.problem is None
    assert device.group == Group(name="IOMMU group 12", unit="iommuGroup", paths=(function,))


def test_without_an_iommu_the_group_node_has_the_noiommu_name(host: HostTreeBuilder):
    host.pci("0000:01:00.0", "10de:20b5", driver="vfio-pci", group=0)
    host.write("kernel/iommu_groups/0/name", "vfio-noiommu\n")
    host.node("vfio/noiommu-0")
    host.node("vfio/vfio")
    assert found(host, {"pci": {}})["0000:01:00.0"].nodes == ("/dev/vfio/noiommu-0", "/dev/vfio/vfio")


@pytest.mark.parametrize(
    ("group", "text"), [(12, "/dev/vfio/12, /dev/vfio/vfio of IOMMU group 12"), (None, "no IOMMU group")]
)
def test_a_function_on_vfio_without_its_node_has_a_problem(host: HostTreeBuilder, group: int | None, text: str):
    host.pci("0000:01:00.0", "10de:20b5", driver="vfio-pci", group=group)
    device = found(host, {"pci": {}})["0000:01:00.0"]
    assert device.nodes == ()
    assert device.problem is not None
    assert device.problem[0] == "DeviceNodeMissing"
    assert text in device.problem[1]


def test_iommu_groups_contain_every_function_of_the_node(host: HostTreeBuilder):
    host.pci("0000:01:00.0", "10de:20b5", driver="vfio-pci", group=1)
    host.pci("0000:01:00.1", "10de:10f0", driver="snd_hda_intel", group=1)
    host.pci("0000:02:00.0", "8086:1521", driver="igb", group=2)
    gpu = found(host, {"pci": {"ids": ["10de:20b5"]}})["0000:01:00.0"]
    assert gpu.group is not None
    assert "0000:01:00.1 (driver snd_hda_intel)" in gpu.group.unviable
    assert "0000:02:00.0" not in gpu.group.unviable
    assert found(host, {"pci": {"ids": ["8086:*"]}})["0000:02:00.0"].group is None


def test_an_nvme_controller_has_its_namespaces(host: HostTreeBuilder):
    function = host.pci("0000:05:00.0", "144d:a808", pci_class="010802", driver="nvme")
    nvme = host.obj(f"{function}/nvme/nvme0", "nvme", devname="nvme0", serial="S1 ")
    disk = host.obj(f"{nvme}/nvme0n1", "block", devname="nvme0n1", block=True)
    host.obj(f"{disk}/nvme0n1p1", "block", devname="nvme0n1p1", block=True)
    (whole,) = found(host, {"pci": {"classes": ["0108"]}}).values()
    assert whole.nodes == ("/dev/nvme0", "/dev/nvme0n1", "/dev/nvme0n1p1")
    controller = found(host, {"sysfs": {"subsystem": "nvme"}}, unit="attr.serial")["nvme0"]
    assert controller.attributes["attr.serial"] == "S1"
    assert controller.attributes["pci.address"] == "0000:05:00.0"


def test_own_nodes_stop_at_the_next_object_that_the_entry_reports_itself(host: HostTreeBuilder):
    disk = host.obj("devices/virtual/block/sda", "block", devname="sda", block=True)
    host.obj(f"{disk}/sda1", "block", devname="sda1", block=True)
    both = found(host, {"sysfs": {"subsystem": "block"}})
    assert {name: d.nodes for name, d in both.items()} == {"sda": ("/dev/sda",), "sda1": ("/dev/sda1",)}
    whole = found(host, {"sysfs": {"subsystem": "block", "names": ["sd?"]}})
    assert {name: d.nodes for name, d in whole.items()} == {"sda": ("/dev/sda", "/dev/sda1")}


def test_an_fpga_region_has_port_and_engine_and_the_afu_by_a_relative_path(host: HostTreeBuilder):
    function = host.pci("0000:b1:00.0", "8086:09c4", pci_class="120000", driver="dfl-pci")
    region = host.obj(f"{function}/fpga_region/region0", "fpga_region")
    port = host.obj(
        f"{region}/dfl-port.0", "platform", bus=True, devname="dfl-port.0", afu_id="d8424dc4a4a3c413f89e433683f9040b"
    )
    host.obj(f"{region}/dfl-fme.0", "platform", bus=True, devname="dfl-fme.0")
    device = found(host, {"sysfs": {"subsystem": "fpga_region"}}, name="intel.com/fpga-{attr.dfl-port.0/afu_id}")[
        "region0"
    ]
    assert device.nodes == ("/dev/dfl-fme.0", "/dev/dfl-port.0")
    assert device.attributes["attr.dfl-port.0/afu_id"] == "d8424dc4a4a3c413f89e433683f9040b"
    assert port.startswith(device.sysfs_path or "-")


def serial_adapter(host: HostTreeBuilder, port: str, tty: str, serial: str | bytes) -> str:
    hub = (
        f"{host.pci('0000:00:14.0', '8086:7ae0', pci_class='0c0330', driver='xhci_hcd')}/usb1"
        if not (host.sys / f"{ROOT}/0000:00:14.0").exists()
        else f"{ROOT}/0000:00:14.0/usb1"
    )
    device = host.usb(f"{hub}/{port}", vendor="0403", product="6001", serial=serial)
    interface = host.obj(f"{device}/{port}:1.0", "usb", bus=True)
    host.bind(interface, "ftdi_sio", bus="usb")
    return host.obj(f"{interface}/{tty}/tty/{tty}", "tty", devname=tty)


def test_a_serial_adapter_by_its_stable_link_keeps_the_name_and_gives_the_real_node(host: HostTreeBuilder):
    tty = serial_adapter(host, "1-2.3", "ttyUSB0", "A9\n")
    host.dev_link("serial/by-id/usb-FTDI-if00", "../../ttyUSB0")
    host.dev_link("serial/by-id/usb-gone", "../../ttyUSB9")
    (device,) = found(host, {"files": {"paths": ["/dev/serial/by-id/*"]}}).values()
    assert device.sysfs_path == tty
    assert device.nodes == ("/dev/ttyUSB0",)
    assert device.attributes == {
        "name": "usb-FTDI-if00",
        "path": "/dev/serial/by-id/usb-FTDI-if00",
        "index": "0",
        "subsystem": "tty",
        "driver": "ftdi_sio",
        "usb.vendor": "0403",
        "usb.product": "6001",
        "usb.serial": "A9",
        "usb.port": "1-2.3",
        "pci.address": "0000:00:14.0",
        "pci.vendor": "8086",
        "pci.device": "7ae0",
        "pci.class": "0c0330",
        "pci.driver": "xhci_hcd",
    }


def test_two_paths_to_one_node_are_one_device_under_the_first_name(host: HostTreeBuilder):
    serial_adapter(host, "1-2", "ttyUSB0", "A9")
    host.dev_link("serial/by-id/usb-x", "../../ttyUSB0")
    assert list(found(host, {"files": {"paths": ["/dev/serial/by-id/*", "/dev/ttyUSB*"]}})) == ["usb-x"]


@pytest.mark.parametrize(
    ("serial", "text"),
    [
        (b"A\x1b[31m\x00B\n", "A_[31m_B"),
        (b" two\nlines \t x ", "two lines   x"),
        ("Ä\u2028\x85z".encode(), "Ä__z"),
        (b"\xff\xfe", "__"),
        (b"x" * 500, "x" * 128),
        (b"\n", None),
    ],
)
def test_a_serial_number_from_hardware_is_made_safe(host: HostTreeBuilder, serial: bytes, text: str | None):
    serial_adapter(host, "1-2", "ttyUSB0", serial)
    device = found(host, {"sysfs": {"subsystem": "tty"}})["ttyUSB0"]
    assert device.attributes.get("usb.serial") == text


def test_the_nodes_of_a_camera_agree_on_their_port(host: HostTreeBuilder):
    port = host.pci("0000:00:14.0", "8086:7ae0", pci_class="0c0330", driver="xhci_hcd")
    camera = host.usb(f"{port}/usb1/1-4", vendor="046d", product="085e", serial="C1")
    interface = host.obj(f"{camera}/1-4:1.0", "usb", bus=True)
    for i in (0, 1):
        host.obj(f"{interface}/video4linux/video{i}", "video4linux", devname=f"video{i}", index=str(i))
    devices = found(
        host, {"sysfs": {"subsystem": "video4linux"}}, exclude=[{"attribute": "attr.index", "values": ["9"]}]
    )
    assert [(d.nodes, d.attributes["usb.port"], d.attributes["attr.index"]) for d in devices.values()] == [
        (("/dev/video0",), "1-4", "0"),
        (("/dev/video1",), "1-4", "1"),
    ]
    whole = found(host, {"sysfs": {"subsystem": "usb", "names": ["1-4"]}})["1-4"]
    assert whole.nodes[1:] == ("/dev/video0", "/dev/video1")
    assert whole.nodes[0].startswith("/dev/bus/usb/001/")


def test_a_gaudi_has_accel_and_infiniband_nodes(host: HostTreeBuilder):
    function = host.pci("0000:19:00.0", "1da3:1020", pci_class="120000", driver="habanalabs")
    host.obj(f"{function}/accel/accel0", "accel", devname="accel/accel0")
    host.obj(f"{function}/accel/accel_controlD0", "accel", devname="accel/accel_controlD0")
    host.obj(f"{function}/infiniband/hbl_0", "infiniband")
    host.obj(f"{function}/infiniband_verbs/uverbs0", "infiniband_verbs", devname="infiniband/uverbs0")
    (device,) = found(host, {"pci": {"ids": ["1da3:*"]}}).values()
    assert device.nodes == ("/dev/accel/accel0", "/dev/accel/accel_controlD0", "/dev/infiniband/uverbs0")


def test_misc_devices_have_the_node_that_the_kernel_names(host: HostTreeBuilder):
    for name, devname in {"kvm": "kvm", "hw_random": "hwrng", "tun": "net/tun"}.items():
        host.obj(f"devices/virtual/misc/{name}", "misc", devname=devname)
    devices = found(host, {"sysfs": {"subsystem": "misc"}})
    assert {name: d.nodes for name, d in devices.items()} == {
        "hw_random": ("/dev/hwrng",),
        "kvm": ("/dev/kvm",),
        "tun": ("/dev/net/tun",),
    }
    (by_file,) = found(host, {"files": {"paths": ["/dev/net/tun"]}}).values()
    assert by_file.sysfs_path == "devices/virtual/misc/tun"


def test_a_node_that_is_missing_in_dev_is_a_problem_of_its_device_only(host: HostTreeBuilder):
    host.obj("devices/virtual/misc/kvm", "misc", devname="kvm", present=False)
    host.obj("devices/virtual/misc/fuse", "misc", devname="fuse")
    devices = found(host, {"sysfs": {"subsystem": "misc"}})
    assert devices["fuse"].problem is None
    reason, message = devices["kvm"].problem
    assert reason == "DeviceNodeMissing"
    assert "/dev/kvm" in message
    assert devices["kvm"].nodes == ()


def test_a_directory_is_one_device_with_the_nodes_below_it(host: HostTreeBuilder):
    for i in (0, 1):
        for name in ("npu{}mgmt", "npu{}pe0"):
            host.node(f"rngd/{i}/{name.format(i)}")
    host.dev_link("rngd/0/link", "npu0pe0")
    (host.dev / "rngd/empty").mkdir()
    devices = found(host, {"files": {"paths": ["/dev/rngd/*"]}})
    assert {name: d.nodes for name, d in devices.items()} == {
        "0": ("/dev/rngd/0/npu0mgmt", "/dev/rngd/0/npu0pe0"),
        "1": ("/dev/rngd/1/npu1mgmt", "/dev/rngd/1/npu1pe0"),
    }
    assert devices["1"].attributes == {"name": "1", "index": "1", "path": "/dev/rngd/1"}


def test_a_directory_with_nodes_of_one_function_has_its_place_and_of_two_has_none(host: HostTreeBuilder):
    bridge = host.pci("0000:00:01.0", "8086:460d", pci_class="060400")
    for i in (0, 1):
        gpu = host.pci(f"0000:0{i + 1}:00.0", "1002:74a1", below=bridge)
        for node in ("card", "renderD"):
            host.obj(f"{gpu}/drm/{node}{i}", "drm", devname=f"dri{i}/{node}{i}")
            host.dev_link(f"all/{node}{i}", f"../dri{i}/{node}{i}")
    devices = found(host, {"files": {"paths": ["/dev/dri0", "/dev/all"]}})
    assert devices["dri0"].sysfs_path == f"{bridge}/0000:01:00.0"
    assert devices["dri0"].attributes["pci.address"] == "0000:01:00.0"
    assert devices["all"].sysfs_path is None
    assert len(devices["all"].nodes) == 4


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../etc/passwd", "/dev/../etc/passwd", "nowhere"])
def test_links_that_lead_out_of_dev_or_nowhere_are_no_devices(host: HostTreeBuilder, target: str):
    host.node("etc/passwd")
    host.dev_link("evil", target)
    assert found(host, {"files": {"paths": ["/dev/evil"]}}) == {}


def test_an_absolute_link_means_the_nodes_own_dev(host: HostTreeBuilder):
    host.node("real0")
    host.dev_link("alias", "/dev/real0")
    assert found(host, {"files": {"paths": ["/dev/alias"]}})["alias"].nodes == ("/dev/real0",)


@pytest.mark.parametrize("target", ["/etc", "../../../../../../../../etc", "/sys/../etc"])
def test_links_that_lead_out_of_sysfs_are_not_followed(host: HostTreeBuilder, target: str):
    function = host.pci("0000:00:01.0", "8086:1521")
    (host.sys / function / "evil").symlink_to(target)
    (host.sys / "class/misc").mkdir()
    (host.sys / "class/misc/evil").symlink_to(target)
    device = found(
        host,
        {"pci": {}},
        {"sysfs": {"subsystem": "misc"}},
        exclude=[{"attribute": "attr.evil/hostname", "values": ["x"]}],
    )
    assert list(device) == ["0000:00:01.0"]
    assert "attr.evil/hostname" not in device["0000:00:01.0"].attributes


def test_only_files_that_the_configuration_names_are_read(host: HostTreeBuilder):
    function = host.pci("0000:00:01.0", "8086:1521")
    host.write(f"{function}/state", "up\n")
    host.write(f"{function}/other", "x\n")
    os.mkfifo(host.sys / function / "trap")  # reading it would block for ever
    device = found(
        host,
        {"pci": {}, "include": [{"attribute": "attr.state", "values": ["up"]}]},
        exclude=[{"attribute": a, "values": ["x"]} for a in ("pci.attr.state", "attr.trap", "attr.nope", "attr.power")],
    )["0000:00:01.0"]
    assert {k: v for k, v in device.attributes.items() if "attr." in k} == {"attr.state": "up", "pci.attr.state": "up"}


def test_an_unreadable_function_does_not_hide_others(host: HostTreeBuilder):
    host.pci("0000:00:01.0", "8086:1521")
    broken = host.pci("0000:00:02.0", "8086:1521")
    (host.sys / broken / "vendor").unlink()
    host.link("bus/pci/devices/0000:00:03.0", f"{ROOT}/0000:00:03.0")  # unplugged since the directory was read
    devices = found(host, {"pci": {}})
    assert {name: device.left_out and device.left_out[0] for name, device in devices.items()} == {
        "0000:00:01.0": None,
        "0000:00:02.0": "Unreadable",
    }


def test_a_block_class_that_is_missing_is_read_from_sys_block(host: HostTreeBuilder):
    path = host.obj("devices/virtual/block/loop0", "block", devname="loop0", block=True)
    (host.sys / "class/block/loop0").unlink()
    (host.sys / "class/block").rmdir()
    host.link("block/loop0", path)
    assert list(found(host, {"sysfs": {"subsystem": "block"}})) == ["loop0"]
    assert found(host, {"sysfs": {"subsystem": "tpm"}}) == {}


def test_a_bus_is_used_where_there_is_no_class(host: HostTreeBuilder):
    host.obj("devices/platform/x/wq0.0", "dsa", bus=True, devname="dsa/wq0.0")
    host.obj("devices/platform/x/dsa0", "dsa", bus=True)
    assert found(host, {"sysfs": {"subsystem": "dsa", "names": ["wq*"]}})["wq0.0"].nodes == ("/dev/dsa/wq0.0",)


def test_kernel_names_come_in_their_natural_order(host: HostTreeBuilder):
    for i in (10, 9, 2, 1):
        host.obj(f"devices/virtual/tty/ttyS{i}", "tty", devname=f"ttyS{i}")
    names = ["ttyS1", "ttyS2", "ttyS9", "ttyS10"]
    assert list(found(host, {"sysfs": {"subsystem": "tty"}})) == names
    assert list(found(host, {"files": {"paths": ["/dev/ttyS*"]}})) == names


def test_simulated_devices_lie_in_equal_blocks_and_the_listed_ones_are_faulty(host: HostTreeBuilder):
    devices = found(host, {"simulated": {"count": 6, "numaNodes": 2, "unhealthy": [4]}})
    assert [d.numa_node for d in devices.values()] == [0, 0, 0, 1, 1, 1]
    assert [d.attributes["numaNode"] for d in devices.values()] == ["0", "0", "0", "1", "1", "1"]
    assert [d.problem[0] if d.problem else None for d in devices.values()] == [None] * 4 + ["SimulatedFault", None]
    assert all(d.numa_node is None for d in found(host, {"simulated": {"count": 2}}).values())


def test_simulated_devices_keep_their_names_and_share_them_with_no_other_entry(host: HostTreeBuilder):
    one = [
        parse_resource({"name": f"example.com/{n}", "devices": [{"simulated": {"count": 2}}] * 2}, path="r")
        for n in "ab"
    ]
    first, again = (Scanner(host.roots).scan(Document(tuple(one))).by_entry for _ in range(2))
    assert first == again
    names = [d.name for resource in first for entry in resource for d in entry]
    assert len(names) == len(set(names)) == 8


def test_a_plain_file_in_a_live_dev_is_no_device(host: HostTreeBuilder):
    os.mknod(host.dev / "null", 0o020666, os.makedev(1, 3))
    host.node("typo")
    findings = scan(host, {"files": {"paths": ["/dev/typo", "/dev/null", "/dev/ty*"]}})
    typo, null = findings.by_entry[0][0]
    assert null.name == "null"
    assert typo.left_out == ("NotADevice", "/dev/typo is neither a device node nor a directory that holds one")
    assert findings.errors == ()
    dev = Scanner(host.roots).device_nodes()
    assert (dev.exists("/dev/typo"), dev.exists("/dev/null")) == (False, True)
    os.mknod(host.dev / "ttyS9", 0o020666, os.makedev(4, 73))
    paths = ("/dev/ttyS9", "/dev/null", "/dev/typo", "/dev/nope")
    assert [dev.number(path) for path in paths] == ["char/4:73", "", "", ""]


def test_a_companion_may_be_a_node_a_link_to_one_or_a_directory(host: HostTreeBuilder):
    host.node("dri/card0")
    host.dev_link("gpu", "dri/card0")
    exists = Scanner(host.roots).device_nodes().exists
    assert [exists(p) for p in ("/dev/dri/card0", "/dev/gpu", "/dev/dri", "/dev/nope", "/dev/gpu/x")] == [
        True,
        True,
        True,
        False,
        False,
    ]
