"""The life of an installation: upgrade, drift, deletion with and without the operator, uninstall."""

import json

import pytest
from conftest import CHART, Installation
from kube import NAMESPACE, Kube, device_plugin_config, operator_stopped, wait_for

pytestmark = pytest.mark.disruptive

SIM = "example.com/sim"
SPEC = {"resources": [{"name": SIM, "devices": [{"simulated": {"count": 2}}]}]}


def test_the_charts_own_test_passes(kube: Kube, installation: Installation):
    kube.cluster.helm("test", "device-operator", "-n", NAMESPACE, "--timeout", "60s")


def test_changed_or_deleted_objects_are_repaired(kube: Kube):
    with kube.config("drift", SPEC):
        kube.wait_ready("drift")
        labels = "device-operator.io/config=drift"
        (daemonset,) = kube.every("daemonsets", namespace=NAMESPACE, labels=labels)
        name = daemonset["metadata"]["name"]
        patch = {"spec": {"template": {"spec": {"priorityClassName": "system-cluster-critical", "hostNetwork": True}}}}
        kube("patch", "daemonset", name, "-n", NAMESPACE, "--type=strategic", "-p", json.dumps(patch))

        def repaired() -> bool:
            spec = kube.get("daemonset", name, namespace=NAMESPACE)["spec"]["template"]["spec"]
            return spec["priorityClassName"] == "system-node-critical" and not spec.get("hostNetwork")

        wait_for("the DaemonSet to be repaired", repaired)
        kube("delete", "configmaps", "-n", NAMESPACE, "-l", labels)
        wait_for("the ConfigMap to be back", lambda: kube.every("configmaps", namespace=NAMESPACE, labels=labels))
        kube("delete", "daemonset", name, "-n", NAMESPACE)
        wait_for("the DaemonSet to be back", lambda: kube.every("daemonsets", namespace=NAMESPACE, labels=labels))
        kube.wait_ready("drift")
        kube.wait_node("node-1", SIM, 2, 2)


def test_a_configuration_is_deleted_while_the_operator_is_down(kube: Kube):
    kube.apply(device_plugin_config("orphan", SPEC))
    kube.wait_ready("orphan")
    wait_for("both inventories", lambda: [kube.inventory("orphan", n) for n in ("node-1", "node-2")])
    with operator_stopped(kube):
        kube.remove_config("orphan")


def test_the_node_that_cannot_have_an_agent_is_named_with_its_taint(kube: Kube):
    kube("taint", "node", "node-2", "device-operator-test=keep-out:NoSchedule")
    pool = {"name": "default", "tolerations": [{"key": "something-else", "operator": "Exists"}]}
    try:
        with kube.config("tainted", SPEC | {"nodePools": [pool]}):

            def told() -> dict:
                nodes = kube.get("dpc", "tainted")["status"]["nodes"]
                node = next(n for n in nodes if n["name"] == "node-2")
                assert "device-operator-test" in node["message"], node
                return node

            node = wait_for("node-2 to be Pending with the taint", told)
            assert node["state"] == "Pending"
    finally:
        kube("taint", "node", "node-2", "device-operator-test-")


def test_an_upgrade_keeps_devices_served_and_pods_running(kube: Kube, installation: Installation):
    with kube.config("upgrade", SPEC):
        kube.wait_ready("upgrade")
        kube.wait_node("node-1", SIM, 2, 2)
        with kube.pod("through", limits={SIM: 1}, node="node-1") as pod:
            installation.upgrade("--set", "operator.log.level=debug")
            kube("rollout", "status", "deployment/device-operator", "-n", NAMESPACE, "--timeout=120s")
            kube.wait_ready("upgrade")
            after = kube.get("pod", "through")
            assert after["metadata"]["uid"] == pod["metadata"]["uid"]
            assert after["status"]["phase"] == "Running"
            kube.wait_node("node-1", SIM, 2, 2)


def test_an_uninstall_keeps_what_agents_need_and_nothing_else(kube: Kube, installation: Installation):
    kube.apply(device_plugin_config("last", SPEC))
    kube.wait_ready("last")
    kube.remove_config("last")
    installation.uninstall()
    try:
        kinds = "all,configmaps,serviceaccounts,roles,rolebindings"

        def left() -> list[str]:
            names = kube("get", kinds, "-n", NAMESPACE, "-o", "name").split()
            return [n for n in names if not n.endswith(("/kube-root-ca.crt", "/default"))]

        wait_for("the agents' account alone", lambda: left() == ["serviceaccount/device-operator-agent"])
        cluster_wide = kube(
            "get",
            "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
            "-o",
            "name",
        )
        ours = {n.partition("/")[2] for n in cluster_wide.split() if "device-operator" in n}
        assert ours == {"device-operator-agent", "device-operator-agent-node"}
        assert "devicepluginconfigs.device-operator.io" in kube("get", "crds", "-o", "name")
    finally:
        installation.install()
    with kube.config("again", SPEC):
        kube.wait_ready("again")


def test_after_an_uninstall_an_agent_that_ends_comes_back_and_serves(kube: Kube, installation: Installation):
    with kube.config("stays", SPEC):
        kube.wait_ready("stays")
        kube.wait_node("node-1", SIM, 2, 2)
        installation.uninstall()
        try:
            labels = "device-operator.io/config=stays"
            before = {p["metadata"]["uid"] for p in kube.every("pods", namespace=NAMESPACE, labels=labels)}
            kube("delete", "pods", "-n", NAMESPACE, "-l", labels)

            def replaced() -> bool:
                pods = kube.every("pods", namespace=NAMESPACE, labels=labels)
                ready = [c["status"] for p in pods for c in p["status"].get("conditions", []) if c["type"] == "Ready"]
                return before.isdisjoint(p["metadata"]["uid"] for p in pods) and ready == ["True", "True"]

            wait_for("new agents that are Ready", replaced)
            kube.wait_node("node-1", SIM, 2, 2)
        finally:
            installation.install()
        kube.wait_ready("stays")


def test_a_misspelt_chart_value_fails_the_installation(kube: Kube):
    with pytest.raises(Exception, match="agnet"):
        kube.cluster.helm("template", "x", str(CHART), "--set", "agnet.image.tag=1")
