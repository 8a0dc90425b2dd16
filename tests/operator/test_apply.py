"""From `kubectl apply` to the pools' objects, and back when somebody edits them."""

from collections.abc import Callable

from kubeapi import CONFIGS, NODES, Kube, Object, condition, config, eventually, node, pool
from operator_process import IMAGE, OperatorProcess

Owned = Callable[..., dict[str, Object]]


def test_each_pool_gets_a_configmap_and_a_daemonset(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(NODES, node("pools-1", hardware="edge"))
    made = kube.create(CONFIGS, config("pools", nodePools=[pool("edge", hardware="edge"), pool("lab", hardware="lab")]))

    daemonsets = eventually("two DaemonSets", lambda: len(found := owned("pools")) == 2 and found)
    configmaps = owned("pools", "configmaps")

    for name in ("edge", "lab"):
        for made_for in (daemonsets[name], configmaps[name]):
            (owner,) = made_for["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("DevicePluginConfig", made["metadata"]["uid"])
        template = daemonsets[name]["spec"]["template"]["spec"]
        assert template["containers"][0]["image"] == IMAGE
        volumes = [v["configMap"]["name"] for v in template["volumes"] if "configMap" in v]
        assert volumes == [configmaps[name]["metadata"]["name"]]
        assert "example.com/pools" in configmaps[name]["data"]["config.json"]
    accepted = eventually("a verdict", lambda: condition(kube.get(f"{CONFIGS}/pools"), "Accepted"))
    assert accepted["status"] == "True", accepted
