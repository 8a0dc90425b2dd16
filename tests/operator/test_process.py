"""The operator as one of several processes: election, start, end, and changes during a broken connection."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ready_node
from conftest import CRDS, Operators, install_crds
from kubeapi import (
    CONFIGS,
    GROUP,
    NAMESPACE,
    NODES,
    Kube,
    Owned,
    accepted,
    both,
    config,
    eventually,
    node,
    pool,
)
from localcluster import Cluster

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/device-operator"


def restart_api(api: Cluster) -> None:
    pid = api.pids["apiserver"]
    os.kill(pid, signal.SIGKILL)
    # until it has ended, it has the port and counts as running
    eventually("the API server has ended", lambda: api.pids.get("apiserver") != pid)
    api.up()


def holder(kube: Kube) -> str:
    return str(kube.get(LEASE)["spec"]["holderIdentity"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_standby_takes_over(number: signal.Signals, operators: Operators, kube: Kube, owned: Owned) -> None:
    first = operators.start(identity="first")
    first.wait_leading()
    second = operators.start(identity="second")
    eventually("it stands by and is ready", lambda: second.probe("/readyz") == (200, "standing by"))
    assert second.probe("/healthz")[0] == 200
    assert (first.metric("leader"), second.metric("leader")) == (1, 0)
    assert holder(kube) == "first"

    status = first.end(number)
    if number is signal.SIGTERM:
        assert status == 0, first.text
        assert holder(kube) in ("", "second"), "it was not released"
    second.wait_leading()
    assert holder(kube) == "second"
    kube.create(CONFIGS, config("handed"))
    both(owned, "handed")


def test_a_leader_ends_when_somebody_else_has_the_lease(operators: Operators, kube: Kube) -> None:
    operator = operators.start(identity="loser")
    operator.wait_leading()
    stolen = {"holderIdentity": "thief", "leaseDurationSeconds": 3600, "renewTime": "2100-01-01T00:00:00.000000Z"}
    kube.patch(LEASE, {"spec": stolen})

    assert operator.process.wait(15) == 1
    assert "thief has it" in operator.text
    assert holder(kube) == "thief"
    kube.delete(LEASE)


def test_the_operator_waits_for_its_kinds_alive_and_not_leading(
    operators: Operators, kube: Kube, owned: Owned, api: Cluster
) -> None:
    operators.end_shared()
    api.kubectl("delete", "--wait", "-f", str(CRDS))
    try:
        operator = operators.start()
        eventually("it says what it waits for", lambda: "waiting, not leading" in operator.text)
        assert operator.probe("/healthz")[0] == 200
        assert operator.probe("/readyz")[0] == 503
        assert operator.metric("leader") == 0
        assert operator.process.poll() is None
    finally:
        install_crds(api)
    operator.wait_leading()
    kube.create(CONFIGS, config("late"))
    both(owned, "late")


@pytest.fixture
def blind(api: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an account with every right of the operator's but that on nodes."""
    name, account = "blind", f"{NAMESPACE}:blind"
    made = [
        ("serviceaccount", name, "-n", NAMESPACE),
        ("role", name, "-n", NAMESPACE),
        ("rolebinding", name, "-n", NAMESPACE),
    ]
    made += [("clusterrole", name), ("clusterrolebinding", name)]
    flags = {
        "serviceaccount": [],
        "role": [
            "--verb=*",
            "--resource=leases.coordination.k8s.io,configmaps,pods,events,daemonsets.apps,controllerrevisions.apps",
        ],
        "rolebinding": [f"--role={name}", f"--serviceaccount={account}"],
        "clusterrole": [
            "--verb=*",
            f"--resource=devicepluginconfigs.{GROUP},devicepluginconfigs.{GROUP}/status,nodedeviceinventories.{GROUP}",
        ],
        "clusterrolebinding": [f"--clusterrole={name}", f"--serviceaccount={account}"],
    }
    for what in made:
        api.kubectl("create", *what, *flags[what[0]])
    token = api.kubectl("create", "token", name, "-n", NAMESPACE).strip()
    settings: dict[str, Any] = json.loads(api.kubeconfig.read_text())
    settings["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.touch(0o600)
    path.write_text(json.dumps(settings))
    yield path
    for what in reversed(made):
        api.kubectl("delete", *what)


def test_a_missing_permission_ends_the_operator_and_is_named(operators: Operators, blind: Path) -> None:
    operator = operators.start(kubeconfig=blind)
    assert operator.process.wait(20) == 1
    assert "the ServiceAccount may not list and watch nodes" in operator.text
    assert "Traceback" not in operator.text


def test_objects_deleted_while_the_watch_was_down_are_noticed(
    operators: Operators, kube: Kube, owned: Owned, api: Cluster
) -> None:
    """A watch cache that begins after the deletions answers 410, so no event reports them."""
    patient = {"lease_duration_seconds": 120, "lease_renew_deadline_seconds": 100}
    operator = operators.start(**patient)
    operator.wait_leading()
    for name in ("gap-1", "gap-2"):
        ready_node(kube, node(name, pool="gap"))
    kube.create(CONFIGS, config("gap", resource="example.com/gap", nodePools=[pool("edge", pool="gap")]))
    kube.create(CONFIGS, config("gone-too", nodePools=[pool("edge", pool="none")]))
    accepted(kube, "gone-too")
    _, daemonset = both(owned, "gap")
    for name in ("gap-1", "gap-2"):
        agent = Agent(kube, daemonset, name)
        agent.run()
        agent.report({name: "Healthy"}, resource="example.com/gap")

    def nodes() -> str:
        return str(kube.get(f"{CONFIGS}/gap").get("status", {}).get("summary", {}).get("nodes"))

    eventually("both are served", lambda: nodes() == "2/2")
    listed = operator.metric("api_requests_total", verb="list", resource="nodes")

    os.kill(operator.process.pid, signal.SIGSTOP)
    try:
        restart_api(api)  # cuts the watches
        kube.delete(f"{NODES}/gap-1")
        kube.delete(f"{CONFIGS}/gone-too")
        restart_api(api)
    finally:
        os.kill(operator.process.pid, signal.SIGCONT)
    eventually("the node is gone from the status", lambda: nodes() == "1/1", seconds=60)
    assert operator.metric("api_requests_total", verb="list", resource="nodes") > listed, "it was never listed again"
    assert operator.leading
    kube.patch(f"{CONFIGS}/gap", {"spec": {"paused": True}})
    assert accepted(kube, "gap")["status"] == "True"


def test_liveness_holds_while_the_api_server_is_away(
    operators: Operators, kube: Kube, owned: Owned, api: Cluster
) -> None:
    """It is killed as soon as the operator leads: kopf may not have found the kind yet (test_kopf_watch.py)."""
    operator = operators.start(watch_stale_seconds=4.0, lease_duration_seconds=120, lease_renew_deadline_seconds=100)
    operator.wait_leading()
    os.kill(api.pids["apiserver"], signal.SIGKILL)
    try:
        eventually(
            "what is known grows old", lambda: operator.metric("watch_age_seconds", resource="nodes") > 6, seconds=30
        )
        assert operator.probe("/healthz")[0] == 200, "a failed attempt is a sign of life"
    finally:
        api.up()
    kube.create(CONFIGS, config("back"))

    def works() -> bool:
        assert operator.process.poll() is None, f"it has ended:\n{operator.text}"
        assert owned("back"), operator.text[-3000:]
        return True

    eventually("it works on", works, seconds=60)
