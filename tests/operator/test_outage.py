"""Edits while the API server is away and while operators are killed: none is missed, and nothing is written twice.

What was written is read from the API server's own audit log. OUTAGE=60 is the long form, with the lease of the chart.
"""

import contextlib
import hashlib
import http.client
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from agents import HASH, Agent, ready_node
from conftest import AUDITED, Operators, audited
from kubeapi import (
    CONFIGMAPS,
    CONFIGS,
    DAEMONSETS,
    EVENTS,
    NAMESPACE,
    NODES,
    REVISIONS,
    Kube,
    Object,
    Owned,
    RefusedError,
    both,
    condition,
    config,
    eventually,
    node,
    pool,
)
from localcluster import Cluster
from operator_process import OperatorProcess

AWAY = float(os.environ.get("OUTAGE", "12"))
CHART = {"lease_duration_seconds": 15, "lease_renew_deadline_seconds": 10, "lease_retry_seconds": 2}
LEASE = CHART if "OUTAGE" in os.environ else {}
KILLS = 3
"""Operators that end in the test: two are killed, and the leader ends when it cannot renew its lease."""
NAME, RESOURCE = "steady", "example.com/steady"


class Replicas:
    """Two operators. One that ends is started again, as the kubelet does."""

    def __init__(self, operators: Operators, **settings: object) -> None:
        self._operators = operators
        self._settings = settings
        self._all = [self._start(), self._start()]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _start(self) -> OperatorProcess:
        return self._operators.start(**self._settings)

    def _keep(self) -> None:
        while not self._stop.wait(0.1):
            self._all = [each if each.process.poll() is None else self._start() for each in self._all]

    def leader(self) -> OperatorProcess:
        """The one that leads, once the other one stands by."""

        def found() -> OperatorProcess | None:
            phases = {each.probe("/readyz"): each for each in self._all}
            return phases.get((200, "leading")) if (200, "standing by") in phases else None

        leader: OperatorProcess = eventually("one leads, one stands by", found, seconds=60)
        return leader


@pytest.fixture
def account(api: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an account that has its rights by RBAC, and whose writes are in the audit log."""
    api.kubectl("create", "serviceaccount", AUDITED, "-n", NAMESPACE)
    who = f"--serviceaccount={NAMESPACE}:{AUDITED}"
    api.kubectl("create", "clusterrolebinding", AUDITED, "--clusterrole=cluster-admin", who)
    settings: dict[str, Any] = json.loads(api.kubeconfig.read_text())
    settings["users"][0]["user"] = {"token": api.kubectl("create", "token", AUDITED, "-n", NAMESPACE).strip()}
    path = tmp_path / "kubeconfig"
    path.touch(0o600)
    path.write_text(json.dumps(settings))
    yield path
    api.kubectl("delete", "clusterrolebinding", AUDITED)
    api.kubectl("delete", "serviceaccount", AUDITED, "-n", NAMESPACE)


def spec(count: int) -> Object:
    return {"resources": [{"name": RESOURCE, "devices": [{"simulated": {"count": count}}]}]}


def edit(kube: Kube, count: int) -> None:
    kube.patch(f"{CONFIGS}/{NAME}", {"spec": spec(count)})


def edit_as_soon_as_possible(kubeconfig: Path, count: int) -> None:
    kube = Kube(kubeconfig)
    with contextlib.closing(kube):

        def taken() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException, RefusedError, ValueError):
                edit(kube, count)
                return True
            return False

        eventually("an edit is taken", taken, seconds=AWAY + 120)


def reached(kube: Kube, owned: Owned, agent: Agent, count: int) -> None:
    """The DaemonSet has the hash of the edit, and, with the agent's report of it, the object is Ready."""

    def rolled_out() -> bool:
        configmap, daemonset = owned(NAME, "configmaps")["edge"], owned(NAME)["edge"]
        (document,) = configmap["data"].values()
        wanted = hashlib.sha256(document.encode()).hexdigest()
        return f'"count":{count}' in document.replace(" ", "") and daemonset["metadata"]["annotations"][HASH] == wanted

    eventually(f"edit {count} is rolled out", rolled_out, seconds=90)
    agent.report({f"d{i}": "Healthy" for i in range(count)}, resource=RESOURCE)

    def settled() -> bool:
        obj = kube.get(f"{CONFIGS}/{NAME}")
        states = {kind: condition(obj, kind) for kind in ("Accepted", "Progressing", "Ready")}
        generation = obj["metadata"]["generation"]
        return (
            obj["status"]["observedGeneration"] == generation
            and all(state.get("observedGeneration") == generation for state in states.values())
            and [state["status"] for state in states.values()] == ["True", "False", "True"]
            and obj["status"]["summary"]["devices"] == f"{count}/{count}"
        )

    eventually(f"the status tells edit {count}", settled, seconds=60)


def take_away_and_bring_back(api: Cluster, replicas: Replicas, count: int) -> None:
    """The API server is killed. An edit waits for it from its first moment on."""
    leader = replicas.leader()
    pid = api.pids["apiserver"]
    os.kill(pid, signal.SIGKILL)
    back = time.monotonic() + AWAY
    eventually("the API server has ended", lambda: api.pids.get("apiserver") != pid)
    assert leader.process.wait(60) == 1, "a leader that cannot renew its lease ends"
    eventually("the outage is long enough", lambda: time.monotonic() >= back, seconds=AWAY + 1)
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = pool.submit(edit_as_soon_as_possible, api.kubeconfig, count)
        api.up()
        waiting.result()


def state(kube: Kube) -> dict[str, str]:
    """The resourceVersion of everything that the operator writes, its lease apart."""
    paths = (CONFIGS, DAEMONSETS, CONFIGMAPS, REVISIONS, EVENTS)
    return {
        f"{path}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for path in paths for o in kube.items(path)
    }


def check_quiet(kube: Kube, api: Cluster, replicas: Replicas) -> None:
    """Passes in which nothing has changed write nothing, also those of an operator that takes over."""
    before, writes = state(kube), len(audited(api))
    for number in range(3):
        leader = replicas.leader()
        earlier = passes(leader)
        kube.patch(f"{NODES}/{NAME}-1", {"metadata": {"labels": {"poke": f"{number}"}}})
        eventually("a pass", partial(lambda leader, earlier: passes(leader) > earlier, leader, earlier))
        if number == 1:
            leader.process.kill()
    assert [f"{w['verb']} {w['requestURI']}" for w in audited(api)[writes:]] == []
    assert state(kube) == before


def passes(operator: OperatorProcess) -> float:
    return operator.metric("reconcile_seconds_count", result="accepted")


def check_written_once(writes: list[Object]) -> list[Object]:
    """No object is created twice, and each other write brings something new. Returns the statuses, oldest first."""
    created: Counter[str] = Counter()
    versions: dict[str, list[str]] = {}
    statuses: list[Object] = []
    for write in writes:
        resource, meta = write["objectRef"]["resource"], write["responseObject"]["metadata"]
        if write["verb"] == "create":
            created[f"{resource}/{meta['name']}"] += 1
        elif write["verb"] in ("update", "patch"):
            # the version that a write without a change leaves
            versions.setdefault(f"{resource}/{meta['name']}", []).append(meta["resourceVersion"])
        if resource == "devicepluginconfigs":
            statuses.append(write["responseObject"]["status"])
    assert [name for name, times in created.items() if times > 1] == []
    for name, found in versions.items():
        assert len(found) == len(set(found)), f"{name} was written without a change"
    told = [{key: value for key, value in status.items() if key != "lastUpdateTime"} for status in statuses]
    assert all(one != other for one, other in pairwise(told)), "a status was written twice"
    hashes = [w["responseObject"]["metadata"]["annotations"][HASH] for w in writes if _is_update(w, "daemonsets")]
    assert all(one != other for one, other in pairwise(hashes)), "a rollout was written twice"
    return statuses


def _is_update(write: Object, resource: str) -> bool:
    return bool(write["verb"] == "update" and write["objectRef"]["resource"] == resource)


def check_events(kube: Kube, statuses: list[Object]) -> None:
    """Each change of a condition is told once. One that was told before its operator was killed may be undone."""
    events = [e for e in kube.items(EVENTS) if e["involvedObject"]["name"] == NAME]
    assert {e["count"] for e in events} == {1}
    reasons = Counter(e["reason"] for e in events)
    progressing = [condition({"status": status}, "Progressing")["status"] for status in statuses]
    changes = Counter(pairwise(progressing))
    for reason, change in (("Updating", ("False", "True")), ("Updated", ("True", "False"))):
        assert changes[change] <= reasons[reason] <= changes[change] + KILLS, (reason, reasons, progressing)
    assert reasons["Accepted"] == 1


@pytest.mark.timeout(6 * AWAY + 300)
def test_no_edit_is_missed_and_nothing_is_written_twice(
    operators: Operators, account: Path, kube: Kube, owned: Owned, api: Cluster
) -> None:
    ready_node(kube, node(f"{NAME}-1", pool=NAME))
    with Replicas(operators, kubeconfig=account, **LEASE) as replicas:
        replicas.leader()
        kube.create(CONFIGS, config(NAME, resource=RESOURCE, nodePools=[pool("edge", pool=NAME)]))
        agent = Agent(kube, both(owned, NAME)[1], f"{NAME}-1")
        agent.run()
        reached(kube, owned, agent, 2)

        for count in (3, 6):  # one operator after the other is killed between two edits
            edit(kube, count)
            replicas.leader().process.kill()
            edit(kube, count + 1)
            replicas.leader()
            edit(kube, count + 2)
            reached(kube, owned, agent, count + 2)

        take_away_and_bring_back(api, replicas, 9)
        edit(kube, 10)
        reached(kube, owned, agent, 10)
        edit(kube, 11)
        reached(kube, owned, agent, 11)

        check_quiet(kube, api, replicas)
    check_events(kube, check_written_once(audited(api)))
    generations = Counter(r["revision"] for r in kube.items(REVISIONS))
    assert max(generations) == kube.get(f"{CONFIGS}/{NAME}")["metadata"]["generation"]
    assert set(generations.values()) == {1}
