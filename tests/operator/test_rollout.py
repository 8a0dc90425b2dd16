"""A new spec goes to the pools one after the other; the way back is one command."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ready_node
from conftest import Operators
from kubeapi import (
    CONFIGMAPS,
    CONFIGS,
    DAEMONSETS,
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
from localcluster import Cluster, binaries
from operator_process import OperatorProcess

X, Y = "example.com/x", "example.com/y"
POOLS = ("first", "second")
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def entry(name: str, count: int = 1) -> Object:
    return {"name": name, "devices": [{"simulated": {"count": count}}]}


def count(owned: Owned, name: str, which: str) -> list[int]:
    """The numbers of simulated devices in the pool's configuration."""
    (text,) = owned(name, "configmaps")[which]["data"].values()
    return [int(found) for found in re.findall(r'"count": ?(\d+)', text)]


def generation(owned: Owned, name: str) -> dict[str, str]:
    """By pool; the DaemonSet is written after the ConfigMap."""
    return {which: o["metadata"]["annotations"]["device-operator.io/generation"] for which, o in owned(name).items()}


def fleet(kube: Kube, owned: Owned, name: str) -> dict[str, Agent]:
    """An object with two pools of one node each, whose agents serve x and y."""
    for which in POOLS:
        ready_node(kube, node(f"{name}-{which}", **{name: which}))
    made = config(name, nodePools=[pool(which, **{name: which}) for which in POOLS])
    made["spec"]["resources"] = [entry(X), entry(Y)]
    kube.create(CONFIGS, made)
    daemonsets = eventually("both DaemonSets", lambda: len(found := owned(name)) == 2 and found)
    agents = {which: Agent(kube, daemonsets[which], f"{name}-{which}") for which in POOLS}
    for agent in agents.values():
        agent.run()
        serves(agent)
    eventually("it is Ready", lambda: told(kube, name, "Ready").get("status") == "True")
    eventually("it is current", lambda: told(kube, name, "Progressing").get("status") == "False")
    return agents


def serves(agent: Agent, *, x: int = 1) -> None:
    """The agent reports its present configuration, with `x` devices of x and one of y."""
    rows = [
        {"name": name, "entry": name, "registered": True, "devices": n, "healthy": n, "capacity": n, "allocated": 0}
        for name, n in ((X, x), (Y, 1))
    ]
    agent.report({}, resource=X, resources=rows)


def told(kube: Kube, name: str, kind: str) -> Object:
    return condition(kube.get(f"{CONFIGS}/{name}"), kind)


def edit(kube: Kube, name: str, **spec: Any) -> None:
    kube.patch(f"{CONFIGS}/{name}", {"spec": spec})
    assert accepted(kube, name)["status"] == "True"


def test_the_second_pool_follows_when_the_first_is_current(operator: OperatorProcess, kube: Kube, owned: Owned) -> None:
    agents = fleet(kube, owned, "follows")
    edit(kube, "follows", resources=[entry(X, 2), entry(Y, 2)])
    eventually("the first pool has it", lambda: count(owned, "follows", "first") == [2, 2])
    found = eventually("it is told", lambda: (c := told(kube, "follows", "Progressing")).get("status") == "True" and c)
    assert "follows-first" in found["message"]
    assert count(owned, "follows", "second") == [1, 1]

    # what waits is repaired as it was
    waits = owned("follows", "configmaps")["second"]["metadata"]["name"]
    kube.delete(f"{CONFIGMAPS}/{waits}")
    eventually("it is made anew", lambda: "second" in owned("follows", "configmaps"))
    assert count(owned, "follows", "second") == [1, 1]

    eventually("its DaemonSet too", lambda: generation(owned, "follows") == {"first": "2", "second": "1"})
    serves(agents["first"])
    eventually("the second pool follows", lambda: count(owned, "follows", "second") == [2, 2])
    eventually("its DaemonSet too", lambda: generation(owned, "follows") == {"first": "2", "second": "2"})
    serves(agents["second"])
    eventually("it is done", lambda: told(kube, "follows", "Progressing").get("reason") == "Current")


def command(cluster: Cluster, name: str) -> subprocess.CompletedProcess[str]:
    """The command of docs/operations.md, as an admin runs it."""
    section = OPERATIONS.read_text().partition("## Return to an earlier spec")[2]
    text = section.partition("```sh\n")[2].partition("```")[0]
    assert "lab" in text
    folder = binaries.path("kubectl").parent
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", text.replace("lab", name)], env=environment, capture_output=True, text=True, check=False
    )


def test_a_pool_that_loses_a_resource_halts_the_rollout_and_one_command_goes_back(
    operators: Operators, api: Cluster, kube: Kube, owned: Owned
) -> None:
    operators.shared()
    agents = fleet(kube, owned, "halts")
    before = kube.get(f"{CONFIGS}/halts")
    edit(kube, "halts", resources=[entry(X, 2), entry(Y, 2)], agent={"logLevel": "Debug"})
    eventually("the first pool has it", lambda: count(owned, "halts", "first") == [2, 2])
    eventually("its DaemonSet too", lambda: generation(owned, "halts") == {"first": "2", "second": "1"})
    replace(agents["first"], x=0)
    found = eventually("it is told", lambda: (c := told(kube, "halts", "Degraded")).get("reason") == "Halted" and c)
    for named in (X, "halts-first", "second"):
        assert named in found["message"]
    assert Y not in found["message"]
    assert (told(kube, "halts", "Progressing")["status"], told(kube, "halts", "Progressing")["reason"]) == (
        "False",
        "Halted",
    )
    assert told(kube, "halts", "Ready")["status"] == "True"

    # a restart forgets nothing
    operators.end_shared()
    operators.shared()
    eventually("it is written again", lambda: told(kube, "halts", "Degraded").get("reason") == "Halted")
    assert count(owned, "halts", "second") == [1, 1]

    done = command(api, "halts")
    assert done.returncode == 0, done.stderr
    after = kube.get(f"{CONFIGS}/halts")
    assert after["spec"] == before["spec"]
    eventually("the first pool is as before", lambda: count(owned, "halts", "first") == [1, 1])
    assert count(owned, "halts", "second") == [1, 1]
    same = str(after["metadata"]["generation"])
    eventually("both have it", lambda: generation(owned, "halts") == {"first": same, "second": same})
    replace(agents["first"])
    eventually("nothing is halted", lambda: told(kube, "halts", "Degraded").get("status") == "False")


def replace(agent: Agent, *, x: int = 1) -> None:
    """The DaemonSet controller replaces the pod, and the new one reports."""
    agent.end()
    agent.run()
    serves(agent, x=x)


def test_after_a_rejected_edit_the_same_command_gives_back_the_last_accepted_spec(
    operator: OperatorProcess, api: Cluster, kube: Kube
) -> None:
    made = kube.create(CONFIGS, config("back"))
    assert accepted(kube, "back")["status"] == "True"
    kube.patch(f"{CONFIGS}/back", {"spec": {"resources": [{**entry("example.com/back"), "unit": "nosuch"}]}})
    assert accepted(kube, "back")["status"] == "False"
    text = command(api, "back")
    assert text.returncode == 0, text.stderr
    assert kube.get(f"{CONFIGS}/back")["spec"] == made["spec"]
    assert accepted(kube, "back")["status"] == "True"


@pytest.mark.parametrize("seconds", [0.5])
def test_the_status_of_a_quiet_object_is_written_again(operators: Operators, kube: Kube, seconds: float) -> None:
    operators.start(status_refresh_seconds=seconds, resync_seconds=0.5).wait_leading()
    kube.create(CONFIGS, config("quiet"))
    assert accepted(kube, "quiet")["status"] == "True"
    first = kube.get(f"{CONFIGS}/quiet")["status"]
    later = eventually(
        "a later time",
        lambda: (s := kube.get(f"{CONFIGS}/quiet")["status"])["lastUpdateTime"] > first["lastUpdateTime"] and s,
    )
    assert {**later, "lastUpdateTime": ""} == {**first, "lastUpdateTime": ""}


def test_old_agents_keep_the_document_of_their_contract_version_until_they_are_replaced(
    operator: OperatorProcess, kube: Kube, owned: Owned
) -> None:
    ready_node(kube, node("skew-1"))
    kube.create(CONFIGS, config("skew"))
    configmap, daemonset = both(owned, "skew")
    meta = configmap["metadata"]
    kept = {key: meta[key] for key in ("labels", "annotations", "ownerReferences")}
    old = f"{daemonset['metadata']['name']}-v0"
    rolling = {"observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": 0}
    rolling |= {"currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 0}
    path = f"{DAEMONSETS}/{daemonset['metadata']['name']}/status"
    kube.patch(path, {"status": rolling})
    kube.create(CONFIGMAPS, {"metadata": {"name": old, **kept}, "data": {"config.json": "{}"}})
    passes = operator.metric("reconcile_seconds_count", result="accepted")
    edit(kube, "skew", agent={"logLevel": "Debug"})
    eventually("passes", lambda: operator.metric("reconcile_seconds_count", result="accepted") > passes + 1)
    assert kube.find(f"{CONFIGMAPS}/{old}") is not None
    eventually(
        "the edit", lambda: kube.get(f"{DAEMONSETS}/{daemonset['metadata']['name']}")["metadata"]["generation"] == 2
    )
    kube.patch(path, {"status": {**rolling, "observedGeneration": 2, "updatedNumberScheduled": 1}})
    eventually("it is removed", lambda: kube.find(f"{CONFIGMAPS}/{old}") is None)
