"""What pods hold, by the record of a real kubelet: other plugins' pods, and a kubelet that has lost its record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import foreign
import pytest
from device_agent.kubelet import checkpoint
from kube import Kube, Object, wait_for
from localcluster import images

pytestmark = pytest.mark.disruptive

RESOURCE = "example.com/disk"
KUBELET = "kubelet"
OPENED = "import os\nprint('opened', sorted(n for n in os.listdir('/dev') if n.startswith('loop')), flush=True)"


def disks(**fields: Any) -> Object:
    return {
        "name": RESOURCE,
        "devices": [{"sysfs": {"subsystem": "block", "names": ["loop[0-2]"]}}],
        "inject": {"env": [{"name": "DISK", "value": "{name}"}]},
        **fields,
    }


@pytest.fixture
def plugins(kube: Kube) -> Path:
    return kube.cluster.node_dir(1) / "device-plugins"


@pytest.fixture
def configured(kube: Kube) -> Iterator[None]:
    with kube.config("disks", {"resources": [disks()]}):
        kube.wait_ready("disks")
        kube.wait_node("node-1", RESOURCE, 3, 3)
        yield


def devices(kube: Kube) -> dict[str, Object]:
    return {d["id"]: d for d in kube.inventory("disks", "node-1")["status"]["devices"]}


def test_the_record_of_this_kubelet_says_what_a_container_was_given(kube: Kube, configured: None, plugins: Path):
    """The form is internal to the kubelet: this pins it for the version under test."""
    with kube.pod("given", limits={RESOURCE: 1}, node="node-1") as pod:
        disk = kube.pod_env("given", "DISK")
        grants = [g for g in checkpoint.read(plugins) or () if g.resource == RESOURCE]
        assert [(g.pod, g.container) for g in grants] == [(pod["metadata"]["uid"], "main")]
        (grant,) = grants
        assert grant.ids == (disk,)
        assert grant.note is not None
        assert list(grant.note.devices[disk].nodes) == [f"/dev/{disk}"]
    wait_for(
        "the record to forget it", lambda: not [g for g in checkpoint.read(plugins) or () if g.resource == RESOURCE]
    )


def test_a_device_of_another_plugins_pod_is_not_offered_until_that_ends(
    kube: Kube, built: dict[str, images.Image], plugins: Path
):
    """The day this product replaces a vendor's plugin while its pods run."""
    agent = built["agent"]
    theirs = {"disk-0": "/dev/loop0"}
    with foreign.plugin(kube, f"{agent.repository}:{agent.tag}", theirs):
        kube.apply(kube.pod_object("theirs", limits={foreign.RESOURCE: 1}, node="node-1", script=OPENED))
        try:
            assert "['loop0']" in kube.log("theirs", until="opened")
            with kube.config("disks", {"resources": [disks()]}):
                kube.wait_node("node-1", RESOURCE, 2, 3)
                # the pod's name comes with the next List, and the record after it
                held = wait_for(
                    "loop0 to be told with the pod",
                    lambda: (d := devices(kube).get("loop0")) and "default/theirs" in d.get("message", "") and d,
                )
                assert held["withheld"] == "HeldAs"
                assert "default/theirs" in held["message"]
                with kube.pod("ours", limits={RESOURCE: 1}, node="node-1"):
                    assert kube.pod_env("ours", "DISK") != "loop0"
                kube("delete", "pod", "theirs", "--grace-period=0", "--force", "--wait=true")
                kube.wait_node("node-1", RESOURCE, 3, 3, seconds=60)
        finally:
            kube("delete", "pod", "theirs", "--ignore-not-found", "--grace-period=0", "--force")


@pytest.mark.parametrize("record", ["torn", "gone"])
def test_a_kubelet_that_lost_its_record_gives_nothing_of_a_running_pod_to_another(
    kube: Kube, configured: None, plugins: Path, record: str
):
    with kube.pod("holder", limits={RESOURCE: 1}, node="node-1"):
        mine = kube.pod_env("holder", "DISK")
        wait_for("the holder's name", lambda: devices(kube)[mine].get("allocatedTo"))
        kube.cluster.stop_service(1, KUBELET)
        file = plugins / checkpoint.FILE
        if record == "torn":
            file.write_bytes(file.read_bytes()[:40])
        else:
            file.unlink()
        kube.cluster.start_service(1, KUBELET)
        told = wait_for("it to be told", lambda: (d := devices(kube)[mine]).get("reason") == "KubeletForgot" and d)
        assert "default/holder" in told["message"]
        # the scheduler counts the holder's request against what is left: one of the two can be had
        kube.wait_node("node-1", RESOURCE, 2, 3, seconds=60)
        with kube.pod("another", limits={RESOURCE: 1}, node="node-1"):
            assert kube.pod_env("another", "DISK") != mine
    kube.wait_node("node-1", RESOURCE, 3, 3, seconds=60)
