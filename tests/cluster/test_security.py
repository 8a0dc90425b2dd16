"""What an agent's token and the operator's may not do, tried with the real ones from inside their pods."""

import json

import pytest
from kube import NAMESPACE, Kube, wait_for

# Sends one request with the pod's own token and prints the status code and the message.
REQUEST = """
import http.client, json, os, ssl, sys
method, path, body, kind = sys.argv[1:5]
base = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=base + "ca.crt")
api = http.client.HTTPSConnection(os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]), context=context)
headers = {"Authorization": "Bearer " + open(base + "token").read(), "Content-Type": kind}
api.request(method, path, body or None, headers)
answer = api.getresponse()
text = answer.read()
print(answer.status, json.loads(text).get("message", ""))
"""
NDI = "/apis/device-operator.io/v1alpha1/nodedeviceinventories"
MERGE = "application/merge-patch+json"


def ask(kube: Kube, pod: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    kind = MERGE if method == "PATCH" else "application/json"
    said = kube(
        "exec",
        pod,
        "-n",
        NAMESPACE,
        "--",
        "/opt/venv/bin/python",
        "-c",
        REQUEST,
        method,
        path,
        json.dumps(body) if body is not None else "",
        kind,
    )
    code, _, message = said.strip().partition(" ")
    return int(code), message


@pytest.fixture
def agent(kube: Kube):
    with kube.config("secure", {"resources": [{"name": "example.com/sim", "devices": [{"simulated": {"count": 1}}]}]}):
        kube.wait_ready("secure")
        yield kube.agent("secure", "node-1")["metadata"]["name"]


def inventory(kube: Kube, *, name: str, node: str) -> dict:
    owner = kube.get("dpc", "secure")["metadata"]
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "NodeDeviceInventory",
        "metadata": {
            "name": name,
            "ownerReferences": [
                {
                    "apiVersion": "device-operator.io/v1alpha1",
                    "kind": "DevicePluginConfig",
                    "name": "secure",
                    "uid": owner["uid"],
                }
            ],
        },
        "spec": {"nodeName": node, "configName": "secure"},
    }


def test_an_agent_writes_its_own_inventory_and_no_other(kube: Kube, agent: str):
    wait_for("both inventories", lambda: [kube.inventory("secure", n) for n in ("node-1", "node-2")])
    status = {"status": {"agentVersion": "forged"}}
    code, message = ask(kube, agent, "PATCH", f"{NDI}/secure.node-2/status", status)
    assert code in (403, 422), message
    assert "node" in message
    assert kube.inventory("secure", "node-2")["status"]["agentVersion"] != "forged"
    code, message = ask(kube, agent, "PATCH", f"{NDI}/secure.node-1/status", {"status": {"poolName": "default"}})
    assert code == 200, message


def test_an_agent_cannot_create_an_inventory_under_a_false_name(kube: Kube, agent: str):
    for name, node in (("secure.node-3", "node-3"), ("secure.node-9", "node-1"), ("false.node-1", "node-1")):
        code, message = ask(kube, agent, "POST", NDI, inventory(kube, name=name, node=node))
        assert code in (403, 422), f"{name} of {node}: {code} {message}"
    code, message = ask(kube, agent, "DELETE", f"{NDI}/secure.node-1")
    assert code == 403, message


def test_an_agent_reads_nothing_else(kube: Kube, agent: str):
    for path in (
        "/api/v1/secrets",
        "/api/v1/pods",
        "/api/v1/nodes",
        "/apis/device-operator.io/v1alpha1/devicepluginconfigs",
    ):
        code, message = ask(kube, agent, "GET", path)
        assert code == 403, f"{path}: {message}"


def test_the_agents_pod_has_no_capability_and_is_not_privileged(kube: Kube, agent: str):
    status = kube(
        "exec", agent, "-n", NAMESPACE, "--", "/opt/venv/bin/python", "-c", "print(open('/proc/1/status').read())"
    )
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(found["CapEff"], 16) == 0
    assert int(found["CapBnd"], 16) == 0
    assert found["NoNewPrivs"].strip() == "1"
    assert found["Seccomp"].strip() == "2"
    spec = kube.get("pod", agent, namespace=NAMESPACE)["spec"]
    container = spec["containers"][0]
    assert container["securityContext"].get("privileged", False) is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert not spec.get("hostNetwork", False)
    assert not spec.get("hostPID", False)
    paths = {v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v}
    assert paths == {"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/dev", "/sys"}
    mounts = {m["name"]: m.get("readOnly", False) for m in container["volumeMounts"]}
    writable = {v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v and not mounts[v["name"]]}
    assert writable == {"/var/lib/kubelet/device-plugins"}


def test_the_operator_reads_no_secrets_and_runs_as_nobody(kube: Kube, agent: str):
    operators = kube.every("pods", namespace=NAMESPACE, labels="app.kubernetes.io/component=operator")
    name = operators[0]["metadata"]["name"]
    for path in ("/api/v1/secrets", f"/api/v1/namespaces/{NAMESPACE}/secrets"):
        code, message = ask(kube, name, "GET", path)
        assert code == 403, message
    said = kube("exec", name, "-n", NAMESPACE, "--", "/opt/venv/bin/python", "-c", "import os; print(os.getuid())")
    assert said.strip() == "65532"


def test_an_agent_image_in_the_object_is_refused_by_default(kube: Kube):
    spec = {
        "resources": [{"name": "example.com/sim", "devices": [{"simulated": {"count": 1}}]}],
        "agent": {"image": "example.com/evil:1"},
    }
    text = json.dumps(
        {
            "apiVersion": "device-operator.io/v1alpha1",
            "kind": "DevicePluginConfig",
            "metadata": {"name": "evil"},
            "spec": spec,
        }
    )
    assert "agent.allowImageOverride" in kube.refuses("apply", "-f", "-", stdin=text)
