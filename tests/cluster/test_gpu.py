"""NVIDIA GPUs on the real kubelet: the driver's library is a fake that a node has as its driver, all else is real."""

from collections.abc import Iterator

import pytest
from fakenvml import Gpu, Scenario, a100s
from gpus import GPU, devices, driver_of, driver_root, gpu, make_nodes, served
from kube import NAMESPACE, Kube, Object, wait_for


@pytest.fixture
def driver(kube: Kube) -> Iterator[Scenario]:
    """Eight A100 in two NUMA nodes."""
    with driver_of(kube, a100s(8)) as scenario:
        yield scenario


def test_an_agent_without_access_to_the_driver_says_so_in_the_status(kube: Kube, driver: Scenario):
    with served(kube, gpu()):

        def told() -> str:
            (resource,) = kube.inventory("gpus", "node-1")["status"]["resources"]
            return str(resource["message"])

        message = wait_for("the reason in the inventory", told)
        assert "libnvidia-ml" in message
        assert kube.node_has("node-1", GPU)[0] == 0


def test_a_runtime_class_that_is_missing_is_named_and_one_that_comes_is_used(kube: Kube, driver: Scenario):
    pool = {"name": "gpu", "nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    agent = {"driverAccess": {"runtimeClass": "late"}}
    mig = gpu("nvidia.com/mig-{profile}", preset="nvidia-mig-cdi")
    runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "late"}}
    with kube.config("gpus", {"resources": [gpu(), mig], "nodePools": [pool], "agent": agent}):

        def pending() -> str:
            nodes = kube.get("dpc", "gpus").get("status", {}).get("nodes", [])
            return next((n["message"] for n in nodes if n["reason"] == "FailedCreate"), "")

        assert 'RuntimeClass "late" not found' in wait_for("the API server's text", pending)
        kube.apply({**runtime_class, "handler": "runc"})
        try:
            # the DaemonSet controller tries again after ever longer times
            kube("rollout", "restart", "daemonset", "-n", NAMESPACE, "-l", "device-operator.io/config=gpus")
            kube.wait_ready("gpus")
            found = kube.agent("gpus", "node-1")
            assert found["spec"]["runtimeClassName"] == "late"
            look = "import os; print(sorted(os.listdir('/var/run/nvidia-container-devices')), os.environ)"
            said = kube("exec", "-n", NAMESPACE, found["metadata"]["name"], "--", "/opt/venv/bin/python", "-c", look)
            assert "['all']" in said
            assert "'NVIDIA_VISIBLE_DEVICES': 'all'" in said
            assert "'NVIDIA_MIG_MONITOR_DEVICES': 'all'" in said
        finally:
            kube("delete", "runtimeclass", "late")


def test_a_pod_gets_the_variable_of_exactly_its_gpu(kube: Kube, driver: Scenario):
    with served(kube, gpu(), driverAccess=driver_root(driver)):
        kube.wait_node("node-1", GPU, 8, 8)
        with kube.pod("one", limits={GPU: 1}, node="node-1"), kube.pod("four", limits={GPU: 4}, node="node-1"):
            one = kube.pod_env("one", "NVIDIA_VISIBLE_DEVICES").split(",")
            four = kube.pod_env("four", "NVIDIA_VISIBLE_DEVICES").split(",")
            known = {g.uuid: g for g in driver.gpus}
            assert len(one) == 1
            assert len(four) == 4
            assert set(one + four) <= set(known)
            assert not set(one) & set(four)
            assert kube.held_ids(1, resource=GPU) == {"one": sorted(one), "four": sorted(four)}


def test_a_pod_gets_the_nodes_of_exactly_its_gpu(kube: Kube, driver: Scenario):
    script = "print('nodes', sorted(n for n in os.listdir('/dev') if n.startswith('nvidia')))"
    with served(kube, gpu(preset="nvidia-gpu-nodes"), driverAccess=driver_root(driver)):
        kube.wait_node("node-1", GPU, 8, 8)
        with kube.pod("nodes", limits={GPU: 1}, node="node-1", script=script):
            ((held,),) = kube.held_ids(1, resource=GPU).values()
            (minor,) = (g.minor for g in driver.gpus if g.uuid == held)
            log = kube.log("nodes", until="nodes")
            wanted = sorted([f"nvidia{minor}", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"])
            assert f"nodes {wanted}" in log


def test_a_new_agent_does_not_offer_a_gpu_held_under_its_former_name(kube: Kube, driver: Scenario):
    shared = "nvidia.com/gpu.shared"
    access = {"driverAccess": driver_root(driver)}
    with served(kube, gpu(), **access):
        kube.wait_node("node-1", GPU, 8, 8)
        with kube.pod("holder", limits={GPU: 1}, node="node-1"):
            held = kube.pod_env("holder", "NVIDIA_VISIBLE_DEVICES")
            # the log level changes the pod template too, so a new agent starts that never served the former name
            with served(kube, gpu(shared, sharing={"replicas": 2}), logLevel="Debug", **access):
                kube.wait_node("node-1", shared, 14, 15)  # the held id is listed under its former name
                rows = kube.inventory("gpus", "node-1")["status"]["devices"]
                told = {d["resource"]: d["withheld"] for d in rows if d["id"] == held}
                assert told == {GPU: "Draining", shared: "HeldAs"}
                kube("delete", "pod", "holder", "--grace-period=0", "--force", "--wait=true")
                kube.wait_node("node-1", shared, 16, 16, seconds=90)


def test_mig_devices_of_three_profiles_and_a_new_partition_while_running(kube: Kube, driver: Scenario):
    driver.gpus = a100s(2)
    driver.repartition(0, ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"])
    make_nodes(driver)
    mig = gpu("nvidia.com/mig-{profile}", "nvidia-mig-env")
    with served(kube, mig, gpu(), driverAccess=driver_root(driver)):
        kube.wait_node("node-1", GPU, 1, 1)
        for name, count in {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}.items():
            kube.wait_node("node-1", f"nvidia.com/mig-{name}", count, count)
        with kube.pod("slice", limits={"nvidia.com/mig-1g.5gb": 1}, node="node-1"):
            assert kube.pod_env("slice", "NVIDIA_VISIBLE_DEVICES") in {m.uuid for m in driver.gpus[0].migs}
        driver.repartition(1, ["1g.5gb"] * 7)
        make_nodes(driver)
        kube.wait_node("node-1", "nvidia.com/mig-1g.5gb", 9, 9, seconds=60)
        wait_for("the whole GPU to be no longer offered", lambda: kube.node_has("node-1", GPU)[0] == 0, seconds=60)


def test_time_slicing_with_another_number_for_some_models(kube: Kube, driver: Scenario):
    small = Gpu(uuid="GPU-00000000-0000-0000-0000-00000000t400", pci="0000:20:00.0", minor=8, name="Tesla T4", mig=None)
    driver.gpus = [*a100s(2), small]
    driver.write()
    make_nodes(driver)
    sharing = {"replicas": 4, "perDevice": [{"match": {"attribute": "model", "values": ["*T4*"]}, "replicas": 2}]}
    with served(kube, gpu(sharing=sharing), deviceMetrics="Prometheus", driverAccess=driver_root(driver)):
        kube.wait_node("node-1", GPU, 10, 10)
        with kube.pod("a", limits={GPU: 2}, node="node-1"), kube.pod("b", limits={GPU: 1}, node="node-1"):
            held = {pod: set(kube.pod_env(pod, "NVIDIA_VISIBLE_DEVICES").split(",")) for pod in ("a", "b")}
            assert len(held["a"]) == 2, "spread over distinct GPUs"
            agent = kube.agent("gpus", "node-1")["metadata"]["name"]

            def attributed() -> dict[str, set[str]]:
                text = kube("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{agent}:9808/proxy/metrics")
                found: dict[str, set[str]] = {}
                for line in text.splitlines():
                    if line.startswith("device_agent_gpu_temperature_celsius{"):
                        labels = dict(p.split("=", 1) for p in line[line.index("{") + 1 : line.index("}")].split(","))
                        found.setdefault(labels["pod"].strip('"'), set()).add(labels["device"].strip('"'))
                return found

            found = wait_for("each holder in the telemetry", lambda: (f := attributed()).keys() >= held.keys() and f)
            assert {pod: found[pod] for pod in held} == held


def test_a_fatal_xid_takes_one_gpu_away_with_cause_and_advice_until_the_driver_is_reloaded(
    kube: Kube, driver: Scenario
):
    with served(
        kube,
        gpu(sharing={"replicas": 2}, health={"recoveryThreshold": 1, "intervalSeconds": 1}),
        driverAccess=driver_root(driver),
    ):
        kube.wait_node("node-1", GPU, 16, 16)
        broken = driver.gpus[3].uuid
        driver.xid(3, 79)
        kube.wait_node("node-1", GPU, 14, 16)

        def told() -> Object:
            (device,) = kube.get("dpc", "gpus")["status"]["unhealthyDevices"]
            return device

        device = wait_for("the broken GPU in the status", told)
        assert device["id"] == broken
        assert "79" in device["message"]
        assert {d["health"] for i, d in devices(kube).items() if i != broken} == {"Healthy"}
        driver.reload_driver()
        kube.wait_node("node-1", GPU, 16, 16, seconds=60)


def test_an_admin_acknowledges_a_failure_that_only_a_reset_would_end(kube: Kube, driver: Scenario):
    with served(kube, gpu(health={"recoveryThreshold": 1, "intervalSeconds": 1}), driverAccess=driver_root(driver)):
        kube.wait_node("node-1", GPU, 8, 8)
        broken = driver.gpus[6].uuid
        driver.xid(6, 79)
        kube.wait_node("node-1", GPU, 7, 8)
        since = wait_for("the failure in the inventory", lambda: (d := devices(kube)[broken])["reason"] and d["since"])
        stale = f"device-operator.io/acknowledge={broken}=2020-01-01T00:00:00Z"
        kube("annotate", "ndi", "gpus.node-1", "--overwrite", stale)
        kube("annotate", "ndi", "gpus.node-1", "--overwrite", f"device-operator.io/acknowledge={broken}={since}")
        kube.wait_node("node-1", GPU, 8, 8, seconds=60)


def test_a_lost_gpu_is_not_given_out_and_the_others_are(kube: Kube, driver: Scenario):
    with served(kube, gpu(health={"failureThreshold": 1, "intervalSeconds": 1}), driverAccess=driver_root(driver)):
        kube.wait_node("node-1", GPU, 8, 8)
        driver.lose(5)
        kube.wait_node("node-1", GPU, 7, 8, seconds=60)
        with kube.pod("seven", limits={GPU: 7}, node="node-1"):
            given = kube.pod_env("seven", "NVIDIA_VISIBLE_DEVICES").split(",")
            assert set(given) == {g.uuid for n, g in enumerate(driver.gpus) if n != 5}


def test_a_library_that_hangs_keeps_no_pod_waiting(kube: Kube, driver: Scenario):
    with served(kube, gpu(), driverAccess=driver_root(driver)):
        kube.wait_node("node-1", GPU, 8, 8)
        driver.hang(seconds=40)
        with kube.pod("meanwhile", limits={GPU: 1}, node="node-1"):
            assert kube.pod_env("meanwhile", "NVIDIA_VISIBLE_DEVICES").startswith("GPU-")
            assert kube.node_has("node-1", GPU) == (8, 8)


def test_the_facts_of_the_gpus_are_written_for_node_feature_discovery(kube: Kube, driver: Scenario):
    with served(kube, gpu(), nodeFeatures="NFD", driverAccess=driver_root(driver)):
        folder = "/etc/kubernetes/node-feature-discovery/features.d"

        def labels() -> str:
            return kube.cluster.run_in_node(1, "sh", "-c", f"cat {folder}/device-operator-*")

        found = wait_for("the file of features", labels)
        assert "nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB" in found
        assert "nvidia.com/gpu.count=8" in found
