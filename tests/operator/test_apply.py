"""From `kubectl apply` to the pools' objects, and back when somebody edits them."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from device_agent.contract import names
from device_operator.__main__ import main
from kubeapi import (
    CONFIGMAPS,
    CONFIGS,
    DAEMONSETS,
    NAMESPACE,
    NODES,
    Kube,
    Object,
    Owned,
    accepted,
    both,
    config,
    eventually,
    node,
    pool,
)
from operator_process import IMAGE, OperatorProcess


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
    assert accepted(kube, "pools")["status"] == "True"


def test_render_prints_what_the_operator_applies(
    operator: OperatorProcess, kube: Kube, owned: Owned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.create(CONFIGS, config("printed", nodePools=[pool("edge", hardware="printed")]))
    configmap, daemonset = both(owned, "printed")
    file = tmp_path / "printed.json"
    file.write_text(json.dumps(kube.get(f"{CONFIGS}/printed")))

    assert main(["render", "-f", str(file), f"--namespace={NAMESPACE}", f"--agent-image={IMAGE}"]) == 0

    for made, printed in zip((configmap, daemonset), yaml.safe_load_all(capsys.readouterr().out), strict=True):
        for key in ("labels", "annotations"):
            assert printed["metadata"][key].items() <= made["metadata"][key].items()
        assert printed["metadata"]["ownerReferences"] == made["metadata"]["ownerReferences"]
        assert printed.get("data") == made.get("data")
    # of equal pod templates alone the hash is equal; the API server adds defaults to the template itself
    key = f"{names.GROUP}/template-hash"
    assert printed["spec"]["template"]["metadata"]["annotations"][key] == made["metadata"]["annotations"][key]
    path = f"{DAEMONSETS}/{made['metadata']['name']}"
    replaced = kube("PUT", f"{path}?dryRun=All", {**printed, "metadata": made["metadata"]})
    assert replaced["spec"] == kube.get(path)["spec"]


def test_the_object_itself_carries_nothing_of_the_operator(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(CONFIGS, config("plain"))
    accepted(kube, "plain")

    meta = kube.get(f"{CONFIGS}/plain")["metadata"]
    assert "finalizers" not in meta
    assert "annotations" not in meta


def _other_image(daemonset: Object) -> None:
    daemonset["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/other:1"


def _another_container(daemonset: Object) -> None:
    daemonset["spec"]["template"]["spec"]["containers"].append({"name": "debug", "image": "example.com/debug:1"})


def _privileged(daemonset: Object) -> None:
    security = daemonset["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    security["privileged"] = security["allowPrivilegeEscalation"] = True


def _no_toleration(daemonset: Object) -> None:
    daemonset["spec"]["template"]["spec"]["tolerations"] = []


def _lost_label(daemonset: Object) -> None:
    del daemonset["metadata"]["labels"][names.LABEL_CONFIG]


def _forged_hash(daemonset: Object) -> None:
    daemonset["metadata"]["annotations"][f"{names.GROUP}/config-hash"] = "forged"


@pytest.mark.parametrize(
    "edit", [_other_image, _another_container, _privileged, _no_toleration, _lost_label, _forged_hash]
)
def test_an_edited_daemonset_is_brought_back(
    edit: Callable[[Object], None], operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    kube.create(CONFIGS, config("drift"))
    _, wanted = both(owned, "drift")
    path = f"{DAEMONSETS}/{wanted['metadata']['name']}"
    edited = copy.deepcopy(wanted)
    edit(edited)
    kube("PUT", path, edited)

    def content(daemonset: Object) -> list[Any]:
        meta = copy.deepcopy(daemonset["metadata"])
        meta["annotations"].pop("deprecated.daemonset.template.generation")  # the API server counts edits in it
        return [daemonset["spec"], *(meta.get(key) for key in ("labels", "annotations", "ownerReferences"))]

    eventually("the DaemonSet is as rendered", lambda: content(kube.get(path)) == content(wanted))


def test_foreign_marks_on_a_daemonset_stay(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(CONFIGS, config("marks"))
    _, daemonset = both(owned, "marks")
    path = f"{DAEMONSETS}/{daemonset['metadata']['name']}"
    restarted = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    marks = {"labels": {"team": "infra"}, "annotations": {"note": "kept"}}
    kube.patch(path, {"metadata": marks, "spec": {"template": {"metadata": {"annotations": restarted}}}})

    kube.patch(f"{CONFIGS}/marks", {"spec": {"agent": {"logLevel": "Debug"}}})

    def rolled() -> Object | None:
        live = kube.get(path)
        env = live["spec"]["template"]["spec"]["containers"][0]["env"]
        return live if any(e.get("value", "").lower() == "debug" for e in env) else None

    live = eventually("the new log level", rolled)
    assert live["metadata"]["labels"]["team"] == "infra"
    assert live["metadata"]["annotations"]["note"] == "kept"
    assert live["spec"]["template"]["metadata"]["annotations"].items() >= restarted.items()


def test_a_deleted_or_edited_configmap_comes_back(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(CONFIGS, config("maps"))
    wanted, _ = both(owned, "maps")
    path = f"{CONFIGMAPS}/{wanted['metadata']['name']}"

    kube.patch(path, {"data": {"config.json": "{}", "more": "x"}})
    eventually("its content is back", lambda: kube.get(path)["data"] == wanted["data"])
    kube.delete(path)
    eventually("it is made anew", lambda: (found := kube.find(path)) and found["data"] == wanted["data"])


def test_a_deleted_daemonset_comes_back(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(CONFIGS, config("gone"))
    _, before = both(owned, "gone")
    kube.delete(f"{DAEMONSETS}/{before['metadata']['name']}", propagationPolicy="Background")

    eventually(
        "a new one",
        lambda: (found := owned("gone")) and found["default"]["metadata"]["uid"] != before["metadata"]["uid"],
    )


def test_a_pass_with_nothing_to_do_asks_and_writes_nothing(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(CONFIGS, config("quiet", nodePools=[pool("edge", quiet="nobody")]))
    accepted(kube, "quiet")

    def requests() -> float:
        return sum(
            operator.metric("api_requests_total", verb=verb, resource=plural)
            for verb in ("get", "list", "create", "update", "patch", "delete")
            for plural in (
                "daemonsets",
                "configmaps",
                "controllerrevisions",
                "devicepluginconfigs",
                "events",
                "nodedeviceinventories",
            )
        )

    def versions() -> list[str]:
        objects = [*both(owned, "quiet"), kube.get(f"{CONFIGS}/quiet")]
        return [o["metadata"]["resourceVersion"] for o in objects]

    # the last writes come back through the watches and cause further passes
    before: list[Any] = []

    def still() -> bool:
        before[:] = [
            before[-1] if before else None,
            (requests(), versions(), operator.metric("reconcile_seconds_count")),
        ]
        return before[0] == before[1]

    eventually("it has come to rest", still)
    asked, version = requests(), versions()
    for n in range(3):  # foreign annotations: the cache sees this change, and no write follows
        passes = operator.metric("reconcile_seconds_count")
        kube.patch(
            f"{DAEMONSETS}/{both(owned, 'quiet')[1]['metadata']['name']}", {"metadata": {"annotations": {"n": str(n)}}}
        )
        eventually("a pass", lambda passes=passes: operator.metric("reconcile_seconds_count") > passes)
    assert requests() == asked
    now = versions()
    assert (now[0], now[2]) == (version[0], version[2]), "the ConfigMap or the status was written"


def test_an_object_of_somebody_else_is_left_alone_and_named(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    name = names.pool_object_name("taken", "default")
    labels = {"app": "theirs"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "example.com/a:1"}]}}
    theirs = kube.create(
        DAEMONSETS,
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    )
    kube.create(CONFIGS, config("taken"))

    def told() -> bool:
        return any(name in c["message"] for c in kube.get(f"{CONFIGS}/taken").get("status", {}).get("conditions", []))

    eventually("a condition names it", told)
    assert kube.get(f"{DAEMONSETS}/{name}")["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]

    kube.delete(f"{DAEMONSETS}/{name}")
    kube.create(NODES, node("taken-1"))  # anything that makes a pass
    eventually("ours is made", lambda: owned("taken"))
    eventually("the condition is gone", lambda: not told())


def test_an_unusable_edit_leaves_what_runs(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    made = kube.create(CONFIGS, config("unusable"))
    configmap, daemonset = both(owned, "unusable")
    assert accepted(kube, "unusable")["status"] == "True"

    made["spec"]["resources"][0]["inject"] = {"env": [{"name": "X", "value": "{nosuch}"}]}
    kube.patch(f"{CONFIGS}/unusable", {"spec": made["spec"]})
    verdict = accepted(kube, "unusable")

    assert (verdict["status"], verdict["reason"]) == ("False", "InvalidSpec")
    assert "spec.resources[0].inject.env[0].value" in verdict["message"]
    assert "nosuch" in verdict["message"]
    after = both(owned, "unusable")
    assert [o["metadata"]["resourceVersion"] for o in after] == [
        configmap["metadata"]["resourceVersion"],
        daemonset["metadata"]["resourceVersion"],
    ]


def test_the_earlier_of_two_objects_for_one_resource_is_served(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    kube.create(NODES, node("both-1", both="yes"))
    pools = [pool("edge", both="yes")]
    kube.create(CONFIGS, config("first", resource="example.com/same", nodePools=pools))
    assert accepted(kube, "first")["status"] == "True"
    kube.create(CONFIGS, config("second", resource="example.com/same", nodePools=pools))
    verdict = accepted(kube, "second")

    assert (verdict["status"], verdict["reason"]) == ("False", "ResourceConflict")
    assert "first" in verdict["message"]
    assert "both-1" in verdict["message"]
    assert owned("second") == {}

    kube.patch(f"{CONFIGS}/first", {"spec": {"agent": {"logLevel": "Debug"}}})
    assert accepted(kube, "first")["status"] == "True"
    assert accepted(kube, "second")["status"] == "False"
    kube.delete(f"{CONFIGS}/first")
    eventually("the second takes its place", lambda: accepted(kube, "second")["status"] == "True" and owned("second"))


def test_an_object_keeps_its_resources_while_its_edit_is_rejected(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    kube.create(NODES, node("edits-1", edits="yes"))
    pools = [pool("edge", edits="yes")]
    kube.create(CONFIGS, config("edits", resource="example.com/held", nodePools=pools))
    both(owned, "edits")
    kube.patch(f"{CONFIGS}/edits", {"spec": {"nodePools": [*pools, pool("more", edits="yes")]}})
    assert accepted(kube, "edits")["reason"] == "PoolOverlap"

    kube.create(CONFIGS, config("takes", resource="example.com/held", nodePools=pools))
    verdict = accepted(kube, "takes")
    assert (verdict["status"], verdict["reason"]) == ("False", "ResourceConflict")
    assert "edits" in verdict["message"]
    kube.patch(f"{CONFIGS}/edits", {"spec": {"nodePools": pools}})
    assert accepted(kube, "edits")["status"] == "True"

    entry = config("edits", resource="example.com/other")["spec"]["resources"]
    kube.patch(f"{CONFIGS}/edits", {"spec": {"resources": entry}})
    eventually("the other takes what was let go", lambda: accepted(kube, "takes")["status"] == "True")


def test_two_pools_on_one_node_are_refused(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(NODES, node("over-1", a="x", b="x"))
    kube.create(CONFIGS, config("over", nodePools=[pool("one", a="x"), pool("two", b="x")]))
    verdict = accepted(kube, "over")

    assert (verdict["status"], verdict["reason"]) == ("False", "PoolOverlap")
    assert "over-1" in verdict["message"]
    assert owned("over") == {}


def test_a_pool_that_leaves_takes_its_objects_and_nothing_else(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    kube.create(CONFIGS, config("leave", nodePools=[pool("stays", a="x"), pool("leaves", b="x")]))
    daemonsets = eventually("two DaemonSets", lambda: len(found := owned("leave")) == 2 and found)
    foreign = copy.deepcopy(daemonsets["leaves"])
    foreign["metadata"] = {"name": "foreign", "labels": {names.LABEL_CONFIG: "leave", names.LABEL_POOL: "old"}}
    kube.create(DAEMONSETS, foreign)

    kube.patch(f"{CONFIGS}/leave", {"spec": {"nodePools": [pool("stays", a="x")]}})
    eventually("its DaemonSet is gone", lambda: set(owned("leave")) == {"stays", "old"})
    eventually("its ConfigMap is gone", lambda: set(owned("leave", "configmaps")) == {"stays"})
    assert accepted(kube, "leave")["status"] == "True"
    assert kube.find(f"{DAEMONSETS}/foreign")


def test_paused_changes_nothing_and_goes_on_reporting(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(CONFIGS, config("paused"))
    accepted(kube, "paused")
    configmap, daemonset = both(owned, "paused")
    kube.patch(f"{CONFIGS}/paused", {"spec": {"paused": True, "agent": {"image": "example.com/next:2"}}})

    def observed() -> bool:
        obj = kube.get(f"{CONFIGS}/paused")
        return obj["status"]["observedGeneration"] == obj["metadata"]["generation"]

    eventually("the new generation is reported", observed)
    kube.delete(f"{CONFIGMAPS}/{configmap['metadata']['name']}")
    kube.create(NODES, node("paused-1"))
    eventually("the node is reported", lambda: "paused-1" in str(kube.get(f"{CONFIGS}/paused")["status"]))
    path = f"{DAEMONSETS}/{daemonset['metadata']['name']}"
    assert kube.get(path)["metadata"]["resourceVersion"] == daemonset["metadata"]["resourceVersion"]
    assert owned("paused", "configmaps") == {}

    kube.patch(f"{CONFIGS}/paused", {"spec": {"paused": False}})
    eventually(
        "the edit is in force",
        lambda: kube.get(path)["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/next:2",
    )
    eventually("the ConfigMap is back", lambda: owned("paused", "configmaps"))
