"""What an operator is measured with, in this order: its start, a storm, an edit, a quiet minute, a minute with changes."""

import json
import time

from fleet import DEVICES, NAME, Fleet
from kubeapi import CONFIGS, Kube, Object, condition, eventually
from measuring import Result
from operator_process import OperatorProcess
from readings import Reading, memory, rest

MINUTE = 60.0
CHANGING = 0.01
"""Share of the nodes that change in a minute."""
WAIT = 300.0


def budget(nodes: int) -> float:
    """MiB: 150 for up to 5,000 nodes, 250 for 10,000."""
    return 150 + max(0, nodes - 5000) / 50


class Steps:
    """Of one operator, which has just been started, and a fleet that is complete."""

    def __init__(self, operator: OperatorProcess, kube: Kube, fleet: Fleet) -> None:
        self._operator = operator
        self._kube = kube
        self._fleet = fleet
        self._settled = 0.0

    def results(self) -> list[Result]:
        nodes = len(self._fleet.held)
        steps = [*self._start(), *self._storm(), *self._edit(), *self._quiet(), *self._changes()]
        self._look_at_memory()
        size = len(json.dumps(self._status, separators=(",", ":"))) / 1024
        steps = [
            Result("memory, settled", self._settled, "MiB", budget(nodes)),
            Result("memory, peak", memory(self._operator)[1], "MiB"),
            *steps,
            Result("status, of at most 384 KiB", size, "KiB"),
        ]
        return [Result(f"{nodes} nodes: {r.name}", r.value, r.unit, r.budget) for r in steps]

    def _start(self) -> list[Result]:
        began = time.monotonic()
        self._operator.wait_leading(seconds=WAIT)
        read = time.monotonic() - began
        eventually("Ready", lambda: condition(self._config, "Ready").get("status") == "True", seconds=WAIT)
        told = time.monotonic() - began
        first = rest(self._operator)
        devices = len(self._fleet.held) * DEVICES
        assert self._status["summary"]["devices"] == f"{devices}/{devices}", self._status["summary"]
        self._look_at_memory()
        return [
            Result("start to caches complete", read, "s"),
            Result("start to the right status", told, "s"),
            Result("start: mean of a full pass", first.mean_pass, "s"),
        ]

    def _storm(self) -> list[Result]:
        """Every agent tells of a new holder within some seconds: a busy cluster, or the end of an outage."""
        before, began = Reading.take(self._operator), time.monotonic()
        self._fleet.held = [max(self._fleet.held) + 1] * len(self._fleet.held)
        self._fleet.report()
        self._wait_for_holders()
        told = time.monotonic() - began
        used = rest(self._operator) - before
        return [
            Result("all inventories change: until told", told, "s"),
            Result("all inventories change: processor", used.processor, "s"),
            Result("all inventories change: passes", used.passes, ""),
            Result("all inventories change: mean of a pass", used.mean_pass, "s"),
            Result("all inventories change: writes", used.writes, ""),
        ]

    def _edit(self) -> list[Result]:
        """From the edit until the status counts every node as up to date. The agents' part is played at full speed."""
        before, began = Reading.take(self._operator), time.monotonic()
        self._fleet.apply()
        self._fleet.find_daemonset()
        rolled_out = time.monotonic()
        self._fleet.report()
        reported = time.monotonic()

        def told() -> bool:
            pool = self._status["pools"][0]
            return pool["configHash"] == self._fleet.config_hash and pool["nodes"]["updated"] == len(self._fleet.held)

        eventually("every node is up to date", told, seconds=WAIT)
        ended = time.monotonic()
        used = rest(self._operator) - before
        return [
            Result("edit to the last node's new hash in the status", ended - began, "s"),
            Result("edit: until the DaemonSet has the hash", rolled_out - began, "s"),
            Result("edit: inventories written by the benchmark", reported - rolled_out, "s"),
            Result("edit: last inventory until told", ended - reported, "s"),
            Result("edit: processor", used.processor, "s"),
            Result("edit: writes", used.writes, ""),
        ]

    def _quiet(self) -> list[Result]:
        """Kubelets and agents send heartbeats, and nothing else happens. A status is written anew every 270 s."""
        used = self._minute(changes=0)
        return [
            Result("quiet minute: writes", used.writes, "", 1),
            Result("quiet minute: renewals of the Lease", used.written["leases"], ""),
            Result("quiet minute: processor", used.processor, "s"),
        ]

    def _changes(self) -> list[Result]:
        """Holders come and go on one node after the other. Their news is written at most every 30 s."""
        changes = max(1, round(len(self._fleet.held) * CHANGING))
        used = self._minute(changes=changes)
        self._wait_for_holders()
        return [
            Result("1 % change in a minute: writes", used.writes, "", 4),
            Result("1 % change in a minute: processor", used.processor, "s"),
            Result("1 % change in a minute: passes", used.passes, ""),
            Result("1 % change in a minute: mean of a pass", used.mean_pass, "s"),
        ]

    def _minute(self, *, changes: int) -> Reading:
        before = rest(self._operator)
        self._fleet.live(MINUTE, changes=changes)
        return Reading.take(self._operator) - before

    def _wait_for_holders(self) -> None:
        held = sum(self._fleet.held)
        eventually("holders are counted", lambda: self._status["summary"]["allocated"] == held, seconds=WAIT)

    def _look_at_memory(self) -> None:
        self._settled = max(self._settled, memory(self._operator)[0])

    @property
    def _config(self) -> Object:
        return self._kube.get(f"{CONFIGS}/{NAME}")

    @property
    def _status(self) -> Object:
        status: Object = self._config["status"]
        return status
