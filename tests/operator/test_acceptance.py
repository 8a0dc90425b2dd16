"""What is in force after a rejected edit: the accepted generation, whatever happens to the cluster or the operator."""

import copy
from typing import Any

import pytest
from agents import ready_node
from conftest import Operators
from kubeapi import (
    CONFIGMAPS,
    CONFIGS,
    DAEMONSETS,
    NODES,
    REVISIONS,
    Kube,
    Object,
    Owned,
    accepted,
    both,
    condition,
    config,
    eventually,
    node,
    pool,
)
from operator_process import OperatorProcess

LABEL = "device-operator.io/accepted-spec"


def revisions(kube: Kube, name: str) -> list[Object]:
    """Those of a config, the oldest generation first."""
    return sorted(kube.items(f"{REVISIONS}?labelSelector={LABEL}={name}"), key=lambda r: r["revision"])


def generations(kube: Kube, name: str) -> list[int]:
    return [r["revision"] for r in revisions(kube, name)]


def edit(kube: Kube, name: str, **spec: Any) -> int:
    """The generation that the edit made."""
    return int(kube.patch(f"{CONFIGS}/{name}", {"spec": spec})["metadata"]["generation"])


def reject(kube: Kube, name: str) -> Object:
    """The Accepted condition after an edit that cannot be accepted."""
    made = kube.get(f"{CONFIGS}/{name}")["spec"]["resources"]
    made[0]["inject"] = {"env": [{"name": "X", "value": "{nosuch}"}]}
    edit(kube, name, resources=made)
    found = accepted(kube, name)
    assert (found["status"], found["reason"]) == ("False", "InvalidSpec")
    return found


def accept(kube: Kube, name: str, **spec: Any) -> None:
    kube.create(CONFIGS, config(name, **spec))
    assert accepted(kube, name)["status"] == "True"


def told(kube: Kube, name: str, kind: str) -> Object:
    return condition(kube.get(f"{CONFIGS}/{name}"), kind)


def erase(kube: Kube, owned: Owned, name: str) -> None:
    """Every DaemonSet and ConfigMap of the config is deleted by hand."""
    for path, kind in ((DAEMONSETS, "daemonsets"), (CONFIGMAPS, "configmaps")):
        for found in owned(name, kind).values():
            kube.delete(f"{path}/{found['metadata']['name']}", propagationPolicy="Background")


def contents(objects: tuple[Object, Object]) -> tuple[Any, Any]:
    configmap, daemonset = objects
    return configmap["data"], daemonset["spec"]["template"]


def test_an_accepted_spec_is_kept_and_the_status_tells_its_generation(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    made = kube.create(CONFIGS, config("kept"))
    assert accepted(kube, "kept")["status"] == "True"
    (found,) = revisions(kube, "kept")
    assert (found["revision"], found["data"]) == (1, made["spec"])
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
    _, daemonset = both(owned, "kept")
    assert not daemonset["spec"]["selector"]["matchLabels"].items() <= found["metadata"]["labels"].items()
    eventually("its generation", lambda: kube.get(f"{CONFIGS}/kept")["status"]["acceptedGeneration"] == 1)

    generation = edit(kube, "kept", agent={"logLevel": "Debug"})
    assert generations(kube, "kept") == [1, generation]
    eventually("its generation", lambda: kube.get(f"{CONFIGS}/kept")["status"]["acceptedGeneration"] == generation)


def test_three_different_specs_are_kept(operator: OperatorProcess, kube: Kube) -> None:
    accept(kube, "history")
    levels = ["Debug", "Warning", "Error", "Info"]
    made = []
    for level in levels:
        made.append(edit(kube, "history", agent={"logLevel": level}))
        assert accepted(kube, "history")["status"] == "True"
    eventually("the last three", lambda: generations(kube, "history") == made[1:])
    again = edit(kube, "history", agent={"logLevel": "Error"})
    eventually("one of two equal specs", lambda: generations(kube, "history") == [made[1], made[3], again])


def test_after_a_rejected_edit_a_deleted_daemonset_comes_back(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    accept(kube, "repaired")
    before = both(owned, "repaired")
    assert "generation 1 stays in force" in reject(kube, "repaired")["message"]

    kube.delete(f"{DAEMONSETS}/{before[1]['metadata']['name']}", propagationPolicy="Background")
    eventually("it is made anew", lambda: contents(both(owned, "repaired")) == contents(before))
    assert kube.get(f"{CONFIGS}/repaired")["status"]["acceptedGeneration"] == 1
    assert generations(kube, "repaired") == [1]


def test_after_a_rejected_edit_an_edited_daemonset_is_brought_back(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    accept(kube, "drifts")
    before = both(owned, "drifts")
    reject(kube, "drifts")
    path = f"{DAEMONSETS}/{before[1]['metadata']['name']}"
    kube.patch(path, {"spec": {"template": {"spec": {"hostNetwork": True}}}})
    eventually("it is as before", lambda: contents(both(owned, "drifts")) == contents(before))


def test_a_rejected_edit_outlives_a_restart_with_everything_deleted(
    operators: Operators, kube: Kube, owned: Owned
) -> None:
    operators.shared()
    accept(kube, "restarts", nodePools=[pool("edge", restarts="yes")])
    before = both(owned, "restarts")
    reject(kube, "restarts")
    operators.end_shared()
    erase(kube, owned, "restarts")

    operators.shared()
    eventually("all is made anew", lambda: contents(both(owned, "restarts")) == contents(before))
    # the status still tells of the nodes of the accepted pools
    ready_node(kube, node("restarts-1", restarts="yes"))
    eventually("its node", lambda: "restarts-1" in str(kube.get(f"{CONFIGS}/restarts")["status"].get("nodes")))
    assert told(kube, "restarts", "Accepted")["status"] == "False"


def test_an_accepted_edit_after_a_rejected_one_is_in_force(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    accept(kube, "mended")
    both(owned, "mended")
    reject(kube, "mended")
    good = config("mended", resource="example.com/other")["spec"]["resources"]
    generation = edit(kube, "mended", resources=good)
    assert accepted(kube, "mended")["status"] == "True"
    eventually("its document", lambda: "example.com/other" in str(both(owned, "mended")[0]["data"]))
    eventually("it, and the one before", lambda: generations(kube, "mended") == [1, generation])


def test_while_paused_what_runs_is_kept_too(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    kube.create(NODES, node("rests-1", rests="yes"))
    pools = [pool("edge", rests="yes")]
    accept(kube, "rests", resource="example.com/runs", nodePools=pools)
    both(owned, "rests")
    waiting = config("rests", resource="example.com/waits")["spec"]["resources"]
    edit(kube, "rests", resources=waiting, paused=True)
    for level in ("Debug", "Warning", "Error"):
        latest = edit(kube, "rests", agent={"logLevel": level})
        assert accepted(kube, "rests")["status"] == "True"
    eventually(
        "what runs, and the last three", lambda: generations(kube, "rests") == [1, latest - 2, latest - 1, latest]
    )

    for name, resource in (("one", "example.com/runs"), ("two", "example.com/waits")):
        kube.create(CONFIGS, config(name, resource=resource, nodePools=pools))
        assert accepted(kube, name)["reason"] == "ResourceConflict"

    latest = edit(kube, "rests", paused=False)
    eventually("what ran is not needed", lambda: generations(kube, "rests") == [latest - 2, latest - 1, latest])
    eventually("what was let go is another's", lambda: accepted(kube, "one")["status"] == "True")


def replaced(kube: Kube, found: Object, **changes: Any) -> None:
    """Somebody changes a revision by hand. Its content cannot be edited, so it is deleted and created again."""
    path = f"{REVISIONS}/{found['metadata']['name']}"
    body = copy.deepcopy(found)
    body["metadata"] = {key: found["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    kube.delete(path)
    kube.create(REVISIONS, {**body, **changes})


def delete(kube: Kube, found: Object) -> None:
    kube.delete(f"{REVISIONS}/{found['metadata']['name']}")


def forge(kube: Kube, found: Object) -> None:
    replaced(kube, found, data=config("x", resource="example.com/forged")["spec"])


def unlabel(kube: Kube, found: Object) -> None:
    kube.patch(f"{REVISIONS}/{found['metadata']['name']}", {"metadata": {"labels": {LABEL: None}}})


@pytest.mark.parametrize("damage", [delete, forge, unlabel])
def test_the_revision_of_the_present_generation_is_written_again(
    operator: OperatorProcess, kube: Kube, owned: Owned, damage: Any
) -> None:
    accept(kube, "harmed")
    before = both(owned, "harmed")
    (found,) = revisions(kube, "harmed")
    damage(kube, found)
    eventually("it is as before", lambda: [r["data"] for r in revisions(kube, "harmed")] == [found["data"]])
    assert told(kube, "harmed", "Accepted")["status"] == "True"
    assert contents(both(owned, "harmed")) == contents(before)


@pytest.mark.parametrize("damage", [delete, forge, unlabel])
def test_after_a_rejected_edit_a_lost_spec_is_reported_and_agents_keep_running(
    operator: OperatorProcess, kube: Kube, owned: Owned, damage: Any
) -> None:
    accept(kube, "lost")
    before = both(owned, "lost")
    reject(kube, "lost")
    damage(kube, revisions(kube, "lost")[0])

    eventually("it is told", lambda: told(kube, "lost", "Ready").get("reason") == "AcceptedSpecLost")
    assert "generation 1 is gone" in told(kube, "lost", "Degraded")["message"]
    assert kube.get(f"{CONFIGS}/lost")["status"]["acceptedGeneration"] == 1
    assert contents(both(owned, "lost")) == contents(before)

    # what runs is still its own
    kube.create(NODES, node("lost-1"))
    kube.create(CONFIGS, config("rival", resource="example.com/lost"))
    rival = accepted(kube, "rival")
    assert (rival["status"], rival["reason"]) == ("False", "ResourceConflict")
    for named in ("lost", "lost-1", "example.com/lost"):
        assert named in rival["message"]

    edit(kube, "lost", resources=config("lost")["spec"]["resources"])
    assert accepted(kube, "lost")["status"] == "True"
    eventually("it is in force", lambda: told(kube, "lost", "Ready")["reason"] != "AcceptedSpecLost")


def test_a_spec_of_another_version_of_the_operator_is_reported_and_kept(
    operators: Operators, kube: Kube, owned: Owned
) -> None:
    """As an operator of another version would have written it: right in every way, but for a field unknown here."""
    operators.shared()
    accept(kube, "version")
    before = both(owned, "version")
    reject(kube, "version")
    operators.end_shared()
    (found,) = revisions(kube, "version")
    data = {**found["data"], "fromAnotherVersion": True}
    kube.delete(f"{REVISIONS}/{found['metadata']['name']}")
    kube.create(REVISIONS, as_written(found, data))

    operators.shared()
    eventually("it is told", lambda: told(kube, "version", "Ready").get("reason") == "AcceptedSpecLost")
    assert "spec.fromAnotherVersion" in told(kube, "version", "Accepted")["message"]
    assert [r["data"] for r in revisions(kube, "version")] == [data]
    assert contents(both(owned, "version")) == contents(before)


def as_written(found: Object, data: Object) -> Object:
    from device_operator.cluster.revisions import revision_name
    from device_operator.spec.model import ConfigRef

    meta = found["metadata"]
    ref = ConfigRef(meta["labels"][LABEL], meta["ownerReferences"][0]["uid"])
    name = revision_name(ref, generation=found["revision"], spec=data)
    kept = {"name": name, "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]}
    return {**found, "metadata": kept, "data": data}


def test_a_spec_that_cannot_be_stored_is_not_in_force_and_the_reason_is_reported(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    """The API server refuses the revision, as it would one that is too large."""
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/controllerrevisions.apps": "0"}}}
    path = REVISIONS.replace("/apis/apps/v1", "/api/v1").replace("controllerrevisions", "resourcequotas")
    accept(kube, "crowded")
    before = both(owned, "crowded")
    kube.create(path, quota)
    try:
        used = {"hard": quota["spec"]["hard"], "used": {"count/controllerrevisions.apps": "0"}}
        kube.patch(f"{path}/none/status", {"status": used})  # as the quota controller does
        edit(kube, "crowded", resources=config("x", resource="example.com/other")["spec"]["resources"])
        found = accepted(kube, "crowded")
        assert (found["status"], found["reason"]) == ("False", "SpecNotKept")
        assert "exceeded quota" in found["message"]
        assert "generation 1 stays in force" in found["message"]
        assert contents(both(owned, "crowded")) == contents(before)
    finally:
        kube.delete(f"{path}/none")
    eventually("it is tried again", lambda: told(kube, "crowded", "Accepted")["status"] == "True")
    eventually("it is in force", lambda: "example.com/other" in str(both(owned, "crowded")[0]["data"]))


def test_a_revision_of_somebody_else_under_its_name_is_left_alone_and_named(
    operators: Operators, kube: Kube, owned: Owned
) -> None:
    operators.end_shared()
    made = kube.create(CONFIGS, config("squatted"))
    meta = {"labels": {LABEL: "squatted"}, "ownerReferences": [{"uid": made["metadata"]["uid"]}]}
    wanted = as_written({"metadata": meta, "revision": 1}, made["spec"])
    name = wanted["metadata"]["name"]
    kube.create(REVISIONS, {"metadata": {"name": name}, "revision": 1, "data": {"theirs": True}})

    operators.shared()
    found = accepted(kube, "squatted")
    assert (found["status"], found["reason"]) == ("False", "SpecNotKept")
    assert name in found["message"]
    assert kube.get(f"{REVISIONS}/{name}")["data"] == {"theirs": True}
    assert owned("squatted") == {}

    kube.delete(f"{REVISIONS}/{name}")
    kube.create(NODES, node("squatted-1"))  # anything that makes a pass
    eventually("it is accepted", lambda: accepted(kube, "squatted")["status"] == "True")
