"""kubectl patch on an inventory: the real API server and operator, a real agent, and a stand-in kubelet."""

import json
from typing import Any

import pytest
from agent.standin import until
from kubeapi import EVENTS, INVENTORIES, Kube, Object, condition, eventually
from localcluster import Cluster
from real_agent import INVENTORY, NAME, WIDGET, Serving, document, status


def inventory(kube: Kube) -> dict[str, dict[str, Any]]:
    """Its devices by id."""
    return {d["id"]: d for d in kube.get(f"{INVENTORIES}/{INVENTORY}")["status"]["devices"]}


def patch(api: Cluster, kind: str, name: str, spec: Object) -> None:
    api.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))


def warnings(kube: Kube) -> set[str]:
    events = (e for e in kube.items(EVENTS) if e.get("regarding", e.get("involvedObject", {})).get("name") == NAME)
    return {e["reason"] for e in events if e["type"] == "Warning"}


@pytest.mark.usefixtures("operator")
def test_a_held_device_is_cordoned_and_given_back_by_kubectl_patch(api: Cluster, serving: Serving):
    kube, kubelet = serving.kube, serving.kubelet
    before = warnings(kube)
    kubelet.admit("holder", WIDGET, 1)
    (held,) = kubelet.held(WIDGET)
    patch(api, "ndi", INVENTORY, {"cordoned": [{"id": held, "reason": "swap the cable"}]})
    until(lambda: held not in kubelet.healthy(WIDGET), what="withheld")
    eventually("it is counted", lambda: status(kube)["status"]["summary"].get("withheld") == 1)
    told = status(kube)
    assert told["status"]["summary"]["devices"] == "3/3"
    assert told["status"]["summary"]["unhealthy"] == 0
    assert [condition(told, kind)["status"] for kind in ("Ready", "Degraded")] == ["True", "False"]
    assert inventory(kube)[held]["withheld"] == "Cordoned"
    head, row = api.kubectl("get", "dpc", NAME, "-o", "wide").splitlines()
    assert row[head.index("WITHHELD") :].split()[0] == "1"
    assert warnings(kube) == before
    patch(api, "ndi", INVENTORY, {"cordoned": []})
    kubelet.wait_for(WIDGET, 3)
    eventually("given back", lambda: status(kube)["status"]["summary"]["withheld"] == 0)


@pytest.mark.usefixtures("operator")
def test_a_rule_of_the_configuration_and_a_cordon_outlive_the_inventory(api: Cluster, serving: Serving):
    kube, kubelet = serving.kube, serving.kubelet
    patch(api, "ndi", INVENTORY, {"cordoned": [{"id": "/dev/widget0", "reason": "recall"}]})
    kubelet.wait_for(WIDGET, 2)
    before = kube.get(f"{INVENTORIES}/{INVENTORY}")
    kube.delete(f"{INVENTORIES}/{INVENTORY}")
    again = eventually("made anew", lambda: kube.find(f"{INVENTORIES}/{INVENTORY}"))
    assert again["spec"] == before["spec"]
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    rule = {"match": {"attribute": "path", "values": ["/dev/widget1"]}, "reason": "recall"}
    patch(api, "dpc", NAME, {"cordon": [rule]})
    eventually("it is rendered", lambda: b"recall" in document(serving.owned))
    serving.configure()
    assert kubelet.wait_for(WIDGET, 1) == {"/dev/widget2"}
    eventually("both are counted", lambda: status(kube)["status"]["summary"].get("withheld") == 2)
