"""The main path: a configuration in, a device in a pod, the inventory in the status."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from kube import NAMESPACE, Kube, wait_for

KVM = "example.com/kvm"
FUSE = "example.com/fuse"
VIRTIO = "example.com/virtio"
LOOP = "example.com/loop"


def files(name: str, *paths: str, **fields: object) -> dict:
    return {"name": name, "devices": [{"files": {"paths": list(paths)}}], **fields}


def test_a_pod_opens_the_device_it_asked_for_and_the_status_says_who_holds_it(kube: Kube):
    with kube.config("walk", {"resources": [files(KVM, "/dev/kvm", sharing={"replicas": 3})]}):
        kube.wait_ready("walk")
        kube.wait_node("node-1", KVM, 3, 3)
        script = "import fcntl; print('KVM', fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xAE00))"
        with kube.pod("opens", limits={KVM: 1}, node="node-1", script=script):
            assert "KVM 12" in kube.log("opens", until="KVM")

            def holder() -> dict:
                (device,) = kube.inventory("walk", "node-1")["status"]["devices"]
                (held,) = device["allocatedTo"]
                return held

            assert wait_for("the holder in the inventory", holder, seconds=45) == {
                "namespace": "default",
                "pod": "opens",
                "container": "main",
            }
            summary = wait_for(
                "the summary to count it",
                lambda: (s := kube.get("dpc", "walk")["status"]["summary"])["allocated"] == 1 and s,
                seconds=60,
            )
            assert summary["nodes"] == "2/2"
            assert summary["devices"] == "2/2"
            assert summary["capacity"] == 6
            assert len(kube.held_ids(1, resource=KVM)["opens"]) == 1


def test_a_container_without_the_resource_cannot_open_the_device(kube: Kube):
    script = (
        "try:\n os.mknod('/tmp/kvm', 0o600 | 0o020000, os.makedev(10, 232)); os.open('/tmp/kvm', os.O_RDWR); print('open')\n"
        "except OSError as e: print('refused', e.errno)"
    )
    with kube.pod("without", limits={}, node="node-1", script=script):
        assert "refused 1" in kube.log("without", until="refused")


def test_two_pools_on_two_nodes_get_two_daemonsets_with_different_resources(kube: Kube):
    spec = {
        "resources": [
            files(KVM, "/dev/kvm"),
            {"name": VIRTIO, "devices": [{"pci": {"ids": ["1af4:*"]}}]},
        ],
        "nodePools": [
            {"name": "edge", "nodeSelector": {"hardware": "edge"}, "serves": [KVM]},
            {"name": "lab", "nodeSelector": {"hardware": "lab"}, "serves": [VIRTIO]},
        ],
    }
    with kube.config("pools", spec):
        status = kube.wait_ready("pools")["status"]
        virtio = next(r for r in status["resources"] if r["name"] == VIRTIO)["devices"]
        assert virtio >= 1
        kube.wait_node("node-1", KVM, 1, 1)
        kube.wait_node("node-2", VIRTIO, virtio, virtio)
        assert kube.node_has("node-1", VIRTIO) == (0, 0)
        assert kube.node_has("node-2", KVM)[0] == 0
        daemonsets = kube.every("daemonsets", namespace=NAMESPACE, labels="device-operator.io/config=pools")
        pools = {d["metadata"]["labels"]["device-operator.io/pool"]: d for d in daemonsets}
        assert set(pools) == {"edge", "lab"}
        assert (
            pools["edge"]["spec"]["template"]["spec"]["affinity"]
            != pools["lab"]["spec"]["template"]["spec"]["affinity"]
        )
        assert {p["name"]: p["nodes"]["ready"] for p in status["pools"]} == {"edge": 1, "lab": 1}


def test_each_pod_gets_its_own_device_and_is_told_which(kube: Kube):
    spec = {
        "resources": [
            {
                "name": LOOP,
                "devices": [{"sysfs": {"subsystem": "block", "names": ["loop[0-3]"]}}],
                "inject": {
                    "env": [{"name": "LOOP_DEVICE", "value": "{path}"}, {"name": "DISK{position}", "value": "{name}"}],
                    "annotations": [{"name": "example.com/loop", "value": "{name}"}],
                },
            }
        ]
    }
    with kube.config("loops", spec):
        kube.wait_ready("loops")
        kube.wait_node("node-1", LOOP, 4, 4)
        script = "[os.close(os.open(p, os.O_RDONLY)) for p in os.environ['LOOP_DEVICE'].split(',')]; print('opened')"
        with (
            kube.pod("one", limits={LOOP: 1}, node="node-1", script=script),
            kube.pod("two", limits={LOOP: 2}, node="node-1", script=script),
        ):
            kube.log("one", until="opened")
            kube.log("two", until="opened")
            first = kube.pod_env("one", "LOOP_DEVICE").split(",")
            second = kube.pod_env("two", "LOOP_DEVICE").split(",")
            assert len(first) == 1
            assert len(second) == 2
            assert not set(first) & set(second)
            assert [kube.pod_env("two", f"DISK{i}") for i in (0, 1)] == [
                p.removeprefix("/dev/") for p in sorted(second)
            ]
            held = kube.held_ids(1, resource=LOOP)
            assert [len(held["one"]), len(held["two"])] == [1, 2]


@contextmanager
def requests_unchecked(kube: Kube) -> Iterator[None]:
    """The API server takes what the chart's request policy refuses, as where it is switched off."""
    name = "device-operator-requests"
    binding = kube.get("validatingadmissionpolicybinding", name)
    kube("delete", "validatingadmissionpolicybinding", name)
    try:
        yield
    finally:
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        kube.apply(binding)


def test_a_request_beyond_the_cap_per_container_is_refused_at_apply_and_by_the_kubelet(kube: Kube):
    spec = {"resources": [files(FUSE, "/dev/fuse", sharing={"replicas": 5, "maxPerContainer": 2})]}
    with kube.config("cap", spec):
        kube.wait_ready("cap")
        kube.wait_node("node-1", FUSE, 5, 5)
        greedy = yaml.safe_dump(kube.pod_object("greedy", limits={FUSE: 3}, node="node-1"))
        refused = wait_for("the limit", lambda: kube.refuses("create", "-f", "-", "--dry-run=server", stdin=greedy))
        for fact in ("DevicePluginConfig cap", "container main asks for 3", "at most 2"):
            assert fact in refused
        with requests_unchecked(kube):
            wait_for("a pod without the policy", lambda: kube("create", "-f", "-", stdin=greedy))
            try:
                status = wait_for(
                    "the rejection",
                    lambda: (s := kube.get("pod", "greedy")["status"]).get("phase") == "Failed" and s,
                )
                assert status["reason"] == "UnexpectedAdmissionError"
                assert "at most 2" in status["message"]
                assert "\n" not in status["message"]
            finally:
                kube("delete", "pod", "greedy", "--grace-period=0", "--force")


def test_what_is_injected_reaches_the_container(kube: Kube):
    spec = {
        "resources": [
            files(
                FUSE,
                "/dev/fuse",
                inject={
                    "deviceNodes": [
                        {
                            "own": "fuse",
                            "containerPath": "/dev/mine{position}",
                            "permissions": "rw",
                            "env": "FUSE_NODE",
                        },
                        {"hostPath": "/dev/net/tun", "permissions": "rw"},
                        {"hostPath": "/dev/not-there", "optional": True},
                    ],
                    "mounts": [{"hostPath": "/etc", "containerPath": "/opt/etc", "readOnly": True}],
                    "env": [{"name": "BRACES", "value": "{{{name}}}"}, {"name": "ONE", "value": "1", "counts": [1]}],
                },
            )
        ]
    }
    script = (
        "os.open('/dev/mine0', os.O_RDWR); os.open('/dev/net/tun', os.O_RDWR)\n"
        "try: open('/opt/etc/x', 'w')\n"
        "except OSError as e: print('errno', e.errno)\n"
        "print(os.path.exists('/dev/fuse'), os.environ['FUSE_NODE'], os.environ['BRACES'], os.environ['ONE'])"
    )
    with kube.config("inject", spec):
        kube.wait_ready("inject")
        kube.wait_node("node-1", FUSE, 1, 1)
        with kube.pod("injected", limits={FUSE: 1}, node="node-1", script=script):
            log = kube.log("injected", until="{fuse}")
            assert "errno 30" in log  # read-only file system
            assert "False /dev/mine0 {fuse} 1" in log


def test_cdi_names_reach_the_runtime(kube: Kube):
    node = kube.cluster
    cdi = (
        '{"cdiVersion": "0.6.0", "kind": "example.com/rng", "devices": [{"name": "hwrng", "containerEdits": '
        '{"env": ["CDI_DEVICE=hwrng"], "deviceNodes": [{"path": "/dev/fromcdi", "hostPath": "/dev/random", "type": "c", '
        '"major": 1, "minor": 8}]}}]}'
    )
    node.run_in_node(1, "sh", "-c", "mkdir -p /etc/cdi && cat > /etc/cdi/rng.json", input=cdi)
    spec = {
        "resources": [
            files(
                "example.com/rng",
                "/dev/random",
                unit="name",
                inject={
                    "ownNodes": "Listed",
                    "deviceNodes": [{"own": "nothing", "optional": True}],
                    "cdiDevices": ["example.com/rng=hwrng"],
                },
            )
        ]
    }
    try:
        with kube.config("cdi", spec):
            kube.wait_ready("cdi")
            kube.wait_node("node-1", "example.com/rng", 1, 1)
            script = "print('cdi', os.environ['CDI_DEVICE'], os.path.exists('/dev/fromcdi'))"
            with kube.pod("cdi", limits={"example.com/rng": 1}, node="node-1", script=script):
                assert "cdi hwrng True" in kube.log("cdi", until="cdi")
    finally:
        node.run_in_node(1, "rm", "-f", "/etc/cdi/rng.json")


@pytest.mark.parametrize("policy", ["Packed", "Spread"])
def test_replicas_are_handed_out_by_policy(kube: Kube, policy: str):
    resource = f"example.com/{policy.lower()}"
    spec = {
        "resources": [
            {
                "name": resource,
                "devices": [{"simulated": {"count": 2}}],
                "sharing": {"replicas": 3},
                "allocation": {"policy": policy},
                "inject": {"env": [{"name": "DEVICES", "value": "{index}"}]},
            }
        ]
    }
    with kube.config("policy", spec):
        kube.wait_ready("policy")
        kube.wait_node("node-1", resource, 6, 6)
        with kube.pod("takes-two", limits={resource: 2}, node="node-1"):
            devices = kube.pod_env("takes-two", "DEVICES").split(",")
            assert len(devices) == (1 if policy == "Packed" else 2)
