"""What happened to devices, as the inventory tells it: over a kill of the agent, and without the node's disk."""

from typing import Any

from agent.apiserver import ApiServer
from agent.harness import AgentProcess, Node, Start, document
from agent.standin import Kubelet, until

SIM = "example.com/sim"
UID = "0b7e6a3c-1111-4222-8333-444455556666"
ENV = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
STORE = "device-operator/history"


def reporting(start: Start, api: ApiServer) -> AgentProcess:
    arguments = ("--report=api", f"--api-server={api.url}")
    return start(*arguments, env=ENV, settings={"report_interval": 0.1, "history_pace": 0.1, "store_look": 0.2})


def simulated(count: int, *broken: int) -> dict[str, Any]:
    health = {"failureThreshold": 1, "recoveryThreshold": 1, "removalGraceSeconds": 0, "intervalSeconds": 1}
    device = {"simulated": {"count": count, "unhealthy": list(broken)}}
    return document({"name": SIM, "devices": [device], "health": health})


def told(api: ApiServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.objects.get("lab.node-1", {}).get("status", {}).get("history", [])
    return found


def steps(api: ApiServer) -> list[tuple[str, str]]:
    return [(change.get("from", ""), change["to"]) for change in told(api)]


def test_what_happened_survives_a_kill_and_nothing_is_invented(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer
) -> None:
    node.configure(simulated(2))
    first = reporting(start, api)
    kubelet.wait_for(SIM, 2)
    node.configure(simulated(2, 1))
    until(lambda: steps(api) == [("Healthy", "Unhealthy")], what="the device broke")
    assert told(api)[0]["reason"] == "SimulatedFault"
    broken = told(api)[0]
    file = node.plugins / STORE / f"{UID}.json"
    until(lambda: file.exists() and "SimulatedFault" in file.read_text(), what="kept")
    first.kill()
    del api.objects["lab.node-1"]
    reporting(start, api)
    until(lambda: told(api) == [broken], what="the same history from the disk, and nothing else")
    node.configure(simulated(2))
    until(lambda: len(told(api)) > 1, what="it is back")
    assert steps(api) == [("Healthy", "Unhealthy"), ("Unhealthy", "Healthy")]
    node.configure(simulated(1))
    until(lambda: steps(api)[-1][1] == "Gone", what="it has left the node")
    assert {change["id"] for change in told(api)} == {broken["id"]}
    assert told(api)[0] == broken


def test_a_disk_that_refuses_costs_the_history_of_before_and_nothing_else(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer
) -> None:
    (node.plugins / STORE).parent.mkdir(mode=0o700)
    (node.plugins / STORE).write_text("no directory")
    node.configure(simulated(2))
    agent = reporting(start, api)
    kubelet.wait_for(SIM, 2)
    node.configure(simulated(2, 0))
    until(lambda: steps(api) == [("Healthy", "Unhealthy")], what="the device broke")
    agent.wait_said("the node store cannot be read", section="history")
    assert "healthError" not in api.objects["lab.node-1"]["status"]
    agent.kill()
    reporting(start, api)
    until(lambda: steps(api) == [("", "Unhealthy")], what="what is known without the disk")
