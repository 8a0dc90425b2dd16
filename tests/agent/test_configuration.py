"""The mounted configuration changes while the agent runs, or cannot be used."""

from typing import Any

import pytest
from agent.harness import AgentProcess, Node, Start, document, simulated
from agent.standin import Kubelet, until

SIM = "example.com/sim"


def in_force(agent: AgentProcess, sha256: str) -> bool:
    return agent.metric(f'device_agent_config_info{{hash="{sha256}"}}') == 1


def test_an_edit_takes_effect_while_running(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated(count=2)))
    agent = start()
    kubelet.wait_for(SIM, 2)
    sha256 = node.configure(document(simulated(count=3), simulated("example.com/new", 1)))
    kubelet.wait_for(SIM, 3)
    kubelet.wait_for("example.com/new", 1)
    until(lambda: in_force(agent, sha256), what="the new hash")
    assert kubelet.registered(SIM) == 1
    assert agent.process.poll() is None


def test_a_resource_that_leaves_the_configuration_is_no_longer_served(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    node.configure(document(simulated(), simulated("example.com/old")))
    agent = start()
    kubelet.wait_for("example.com/old", 4)
    old = kubelet.clients["example.com/old"]
    node.configure(document(simulated()))
    assert old.ended.wait(10)
    until(lambda: len(node.sockets()) == 1, what="its socket removed")
    agent.wait_ready()
    kubelet.admit("pod", SIM, 1)
    assert [len(health) for _, health in kubelet.lists["example.com/old"]].count(0) == 0


def test_a_resource_that_comes_back_is_registered_again(node: Node, start: Start, kubelet: Kubelet) -> None:
    both = document(simulated(), simulated("example.com/old"))
    node.configure(both)
    start()
    kubelet.wait_for("example.com/old", 4)
    old = kubelet.clients["example.com/old"]
    node.configure(document(simulated()))
    assert old.ended.wait(10)
    node.configure(both)
    kubelet.wait_for("example.com/old", 4)


def test_more_replicas_keep_the_ids_that_are_held(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated(count=2)))
    start()
    before = kubelet.wait_for(SIM, 2)
    kubelet.admit("pod", SIM, 1)
    node.configure(document(simulated(count=2, sharing={"replicas": 3})))
    assert kubelet.wait_for(SIM, 6) > before


def test_changed_options_cause_a_new_registration(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated(sharing={"maxPerContainer": 1})))
    start()
    kubelet.wait_for(SIM, 4)
    assert not kubelet.clients[SIM].options.get_preferred_allocation_available
    node.configure(document(simulated()))
    until(lambda: kubelet.registered(SIM) == 2, what="registered again")
    kubelet.wait_for(SIM, 4)
    assert kubelet.clients[SIM].options.get_preferred_allocation_available


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (b"{", "the configuration is not valid JSON"),
        (b"[]", "contract version None"),
        ({"contractVersion": 2, "resources": []}, "contract version 2"),
        (document({"name": SIM, "devices": [], "colour": 1}), "unknown field"),
        (document({"name": SIM, "devices": []}), "devices: is empty"),
        (b" " * (900 * 1024 + 1), "longer than 921,600 bytes"),
        (b"[" * 100_000, "the configuration is n"),
    ],
)
def test_a_broken_edit_leaves_the_last_good_one_in_force(
    node: Node, start: Start, kubelet: Kubelet, broken: dict[str, Any] | bytes, told: str
) -> None:
    good = node.configure(document(simulated()))
    agent = start()
    kubelet.wait_for(SIM, 4)
    node.configure(broken)
    record = agent.wait_said("the configuration cannot be used")
    assert told in record["error"]
    until(lambda: agent.metric("device_agent_config_error") == 1, what="the error")
    assert in_force(agent, good)
    kubelet.admit("pod", SIM, 1)
    agent.wait_ready()
    mended = node.configure(document(simulated(count=5)))
    kubelet.wait_for(SIM, 5)
    until(lambda: in_force(agent, mended) and agent.metric("device_agent_config_error") == 0, what="mended")


def test_a_start_with_a_broken_configuration_serves_the_last_accepted_one(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    good = node.configure(document(simulated()))
    first = start()
    ids = kubelet.wait_for(SIM, 4)
    until(lambda: list(node.plugins.glob("device-operator/config/*.json")), what="kept on the node")
    first.terminate()
    node.configure(b"{")
    second = start()
    assert kubelet.wait_for(SIM, 4) == ids
    until(lambda: in_force(second, good), what="the kept one in force")
    assert second.metric("device_agent_config_error") == 1


def test_a_start_without_any_configuration_waits_for_one_alive_and_not_ready(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    agent = start()
    until(lambda: "the configuration cannot be read" in agent.get("/readyz")[1], what="the reason")
    assert agent.get("/readyz")[0] == 503
    assert agent.get("/healthz")[0] == 200
    node.configure(document(simulated()))
    kubelet.wait_for(SIM, 4)
    agent.wait_ready()


def test_an_empty_configuration_is_ready_and_serves_nothing(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document())
    agent = start()
    agent.wait_ready()
    assert kubelet.registrations == []
