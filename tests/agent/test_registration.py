"""The agent's resources are registered again after the kubelet comes, goes, refuses or hangs."""

import contextlib
import shutil
import socket
import threading

import grpc
import pytest
from agent.apiserver import ApiServer
from agent.harness import AgentProcess, Node, Start, document, files, simulated
from agent.standin import Kubelet, until

SIM = "example.com/sim"


def test_a_kubelet_that_comes_later_is_found(node: Node, start: Start, kubelet: Kubelet) -> None:
    kubelet.stop()
    node.configure(document(simulated()))
    agent = start()
    until(lambda: "not registered" in agent.get("/readyz")[1], what="alive and not ready")
    assert agent.get("/healthz")[0] == 200
    kubelet.start()
    kubelet.wait_for(SIM, 4)
    agent.wait_ready()
    assert kubelet.registered(SIM) == 1


def test_a_missing_directory_is_waited_for(node: Node, start: Start) -> None:
    shutil.rmtree(node.plugins)
    node.configure(document(simulated()))
    agent = start()
    until(lambda: "there is no directory" in agent.get("/readyz")[1], what="the reason in /readyz")
    kubelet = Kubelet(node.plugins).start()
    try:
        kubelet.wait_for(SIM, 4)
    finally:
        kubelet.stop()
    assert kubelet.violations == []


def test_a_replaced_directory_is_noticed(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated()))
    start()
    kubelet.wait_for(SIM, 4)
    kubelet.stop()
    node.plugins.rename(node.root / "old")
    kubelet.start()
    kubelet.wait_for(SIM, 4)
    assert kubelet.registered(SIM) == 2


def test_after_a_kubelet_restart_each_resource_is_registered_once_and_held_ids_stay(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    names = [f"example.com/sim{i}" for i in range(4)]
    node.configure(document(*(simulated(name) for name in names)))
    agent = start()
    ids = {name: kubelet.wait_for(name, 4) for name in names}
    kubelet.admit("pod", names[0], 2)
    kubelet.restart()
    for name in names:
        assert kubelet.wait_for(name, 4) == ids[name]
    assert [kubelet.registered(name) for name in names] == [2] * 4
    assert len(node.sockets()) == 4
    kubelet.admit("other", names[0], 2)
    assert kubelet.held(names[0]) == ids[names[0]]
    agent.wait_ready()
    causes = [agent.metric(f'device_agent_registrations_total{{cause="{c}",resource="{names[0]}"}}') for c in
              ("Start", "KubeletRestarted")]  # fmt: skip
    assert causes == [1, 1]


def test_after_five_kubelet_restarts_all_devices_are_registered(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated()))
    start()
    for _ in range(5):
        kubelet.wait_for(SIM, 4)
        kubelet.restart()
    kubelet.wait_for(SIM, 4)


def test_the_old_stream_is_ended_before_registering_at_a_replaced_socket(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    node.configure(document(simulated()))
    start()
    kubelet.wait_for(SIM, 4)
    old = kubelet.clients[SIM]
    kubelet.replace_socket()
    until(lambda: kubelet.registered(SIM) == 2, what="registered again")
    assert old.ended.is_set()
    kubelet.wait_for(SIM, 4)
    # the old stream ended before the new registration, so its end does not remove the new one
    client = kubelet.clients[SIM]
    node.configure(document(simulated(count=5)))
    kubelet.wait_for(SIM, 5)
    assert kubelet.clients[SIM] is client
    assert not client.ended.is_set()
    assert kubelet.registered(SIM) == 2


def test_a_removed_socket_is_made_again(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated()))
    start()
    kubelet.wait_for(SIM, 4)
    (name,) = node.sockets()
    (node.plugins / name).unlink()
    until(lambda: kubelet.registered(SIM) == 2, what="registered again")
    kubelet.wait_for(SIM, 4)
    assert node.sockets().isdisjoint({name})
    kubelet.admit("pod", SIM, 1)


def test_a_stream_that_the_kubelet_ends_is_followed_by_a_registration(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    node.configure(document(simulated()))
    start()
    kubelet.wait_for(SIM, 4)
    kubelet.clients[SIM].stream.cancel()
    until(lambda: kubelet.registered(SIM) == 2, what="registered again")
    kubelet.wait_for(SIM, 4)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v2"]',
            "does not speak the device plugin API v1beta1",
        ),
        ('the ResourceName "example.com/sim" is invalid', "refuses the resource's name"),
        ("failed to dial device plugin: x", "could not connect to the agent's socket"),
        ("failed to get device plugin options: x", "could not ask the agent for its options"),
        ("something new", "refused the registration: something new"),
    ],
)
def test_a_refused_registration_is_explained_and_retried(
    node: Node, start: Start, kubelet: Kubelet, answer: str, told: str
) -> None:
    kubelet.fail_register = answer
    node.configure(document(simulated()))
    agent = start()
    record = agent.wait_said("not registered", resource=SIM)
    assert told in record["error"]
    assert answer in record["error"]
    until(lambda: told in agent.get("/readyz")[1], what="the reason in /readyz")
    kubelet.fail_register = None
    kubelet.wait_for(SIM, 4)
    agent.wait_ready()


def test_refusals_are_tried_again_and_logged_once(node: Node, start: Start, kubelet: Kubelet) -> None:
    kubelet.fail_register = "no"
    node.configure(document(simulated()))
    agent = start(settings={"retry_first": 0.02, "retry_max": 0.2})
    errors = f'device_agent_registration_errors_total{{resource="{SIM}"}}'
    until(lambda: (agent.metric(errors) or 0) >= 6, what="six attempts")
    attempts = [r for r in agent.log if r["message"] == "not registered"]
    assert [r["level"] for r in attempts if r["level"] != "debug"] == ["warning"]


def test_a_register_that_hangs_stops_no_other_resource_and_no_probe(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated()))
    agent = start(settings={"register_deadline": 0.5})
    kubelet.wait_for(SIM, 4)
    kubelet.hang_register = threading.Event()
    node.configure(document(simulated(), simulated("example.com/late")))
    agent.wait_said("not registered", resource="example.com/late")
    kubelet.admit("pod", SIM, 1)
    assert agent.get("/healthz")[0] == 200
    kubelet.hang_register.set()
    kubelet.wait_for("example.com/late", 4)


def test_a_dead_kubelet_socket_is_tried_until_a_kubelet_serves_it(node: Node, start: Start, kubelet: Kubelet) -> None:
    kubelet.stop()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(kubelet.socket))  # bound and not listening, as a killed kubelet leaves it
    node.configure(document(simulated()))
    agent = start()
    assert agent.wait_said("not registered")["error"] == "the kubelet does not answer on its socket"
    kubelet.start()
    kubelet.wait_for(SIM, 4)


def test_devices_are_served_without_pod_resources(node: Node, start: Start) -> None:
    kubelet = Kubelet(node.plugins).start()
    try:
        node.configure(document(simulated()))
        agent = start()
        kubelet.wait_for(SIM, 4)
        kubelet.admit("pod", SIM, 1)
        agent.wait_said("holders are unknown")
        assert agent.metric("device_agent_pod_resources_available") == 0
        kubelet.serve_pod_resources(node.pod_resources)
        until(lambda: agent.metric("device_agent_pod_resources_available") == 1, what="holders known")
        until(lambda: agent.metric(f'device_agent_allocated{{resource="{SIM}"}}') == 1, what="the pod seen")
    finally:
        kubelet.stop()
    assert kubelet.violations == []


def test_holders_are_asked_for_again_soon_when_the_first_answer_fails(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    kubelet.fail_list = grpc.StatusCode.UNAVAILABLE
    node.configure(document(simulated()))
    agent = start(settings={"holders_poll_min": 600, "holders_poll_max": 600})
    until(lambda: kubelet.list_calls >= 2, what="asked again")
    kubelet.fail_list = None
    agent.wait_said("holders are known again")


def test_the_rate_limit_of_pod_resources_is_respected(node: Node, start: Start, kubelet: Kubelet) -> None:
    kubelet.fail_list = grpc.StatusCode.RESOURCE_EXHAUSTED
    node.configure(document(simulated()))
    agent = start(settings={"holders_backoff": 600, "allocatable_poll": 0.1})
    kubelet.wait_for(SIM, 4)
    agent.wait_said("holders are unknown")
    asked = kubelet.list_calls
    kubelet.fail_list = None
    for pod in ("a", "b", "c"):
        kubelet.admit(pod, SIM, 1)
    # each of the three Allocates would have asked soon; at most one question was under way
    others = kubelet.allocatable_calls
    until(lambda: kubelet.allocatable_calls > others + 10, what="another question, many times")
    assert kubelet.list_calls - asked <= 1


def test_a_vanished_device_is_not_dropped_while_holders_are_unknown(node: Node, start: Start, kubelet: Kubelet) -> None:
    path = node.device("widget0")
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    start()
    (device,) = kubelet.wait_for("example.com/widget", 1)
    kubelet.fail_list = grpc.StatusCode.UNAVAILABLE
    asked = kubelet.list_calls
    until(lambda: kubelet.list_calls > asked + 1, what="a failing question")
    path.unlink()
    until(lambda: kubelet.health("example.com/widget") == {device: "Unhealthy"}, what="unhealthy")
    asked = kubelet.list_calls
    until(lambda: kubelet.list_calls > asked + 3, what="more failing questions")
    assert kubelet.health("example.com/widget") == {device: "Unhealthy"}
    kubelet.fail_list = None
    until(lambda: kubelet.health("example.com/widget") == {}, what="dropped")


ENV = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "POOL_NAME": "edge"}


def said_of(api: ApiServer, resource: str) -> str | None:
    """The inventory's reason for a resource."""
    resources = api.objects.get("lab.node-1", {}).get("status", {}).get("resources", ())
    return next((r.get("reason", "") for r in resources if r["name"] == resource), None)


def told(agent: AgentProcess) -> str:
    """Why the agent is not ready."""
    return agent.get("/readyz")[1]


def test_a_resource_that_another_plugin_serves_is_left_to_it_until_it_goes(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    kubelet.take_over(SIM, "theirs-0", "theirs-1")
    node.configure(document(simulated(), simulated("example.com/other")))
    agent = start("--report=api", f"--api-server={api.url}", settings={"retry_max": 0.3}, env=ENV)
    kubelet.wait_for("example.com/other", 4)
    record = agent.wait_said("not registered", resource=SIM)
    assert record["error"].startswith(
        f"ForeignPlugin: another device plugin on this node serves {SIM} (theirs-0, theirs-1)"
    )
    until(lambda: "ForeignPlugin: " in told(agent), what="the reason in /readyz")
    until(lambda: said_of(api, SIM) == "ForeignPlugin", what="the reason in the inventory")
    asked = kubelet.allocatable_calls
    until(lambda: kubelet.allocatable_calls > asked + 2, what="looked again")
    assert kubelet.registered(SIM) == 0
    assert kubelet.healthy(SIM) == {"theirs-0", "theirs-1"}
    kubelet.leave(SIM)
    kubelet.wait_for(SIM, 4)
    agent.wait_ready()
    until(lambda: said_of(api, SIM) == "", what="nothing to say in the inventory")


def test_an_earlier_agent_with_our_ids_is_no_foreign_plugin(node: Node, start: Start, kubelet: Kubelet) -> None:
    node.configure(document(simulated()))
    first = start()
    ids = kubelet.wait_for(SIM, 4)
    first.terminate()
    until(lambda: kubelet.healthy(SIM) == set(), what="the kubelet saw it go")
    kubelet.take_over(SIM, *ids)  # as if the kubelet had not seen that
    start()
    until(lambda: kubelet.registered(SIM) == 2, what="registered")
    assert kubelet.wait_for(SIM, 4) == ids


def test_a_hanging_check_for_other_plugins_delays_a_registration_by_its_deadline(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    kubelet.hang_allocatable = threading.Event()
    node.configure(document(*(simulated(f"example.com/sim{i}") for i in range(4))))
    agent = start(settings={"allocatable_deadline": 0.5})
    try:
        agent.wait_ready()
        assert kubelet.allocatable_calls <= 2, "the resources share one question"
    finally:
        kubelet.hang_allocatable.set()


def test_a_name_that_another_plugin_took_over_is_registered_again_when_it_goes(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    node.configure(document(simulated()))
    agent = start()
    kubelet.wait_for(SIM, 4)
    agent.wait_ready()
    kubelet.take_over(SIM, "theirs")
    until(lambda: "ForeignPlugin: " in told(agent), what="the reason in /readyz")
    asked = kubelet.allocatable_calls
    until(lambda: kubelet.allocatable_calls > asked + 2, what="looked again")
    assert kubelet.registered(SIM) == 1
    assert kubelet.healthy(SIM) == {"theirs"}
    kubelet.leave(SIM)
    kubelet.wait_for(SIM, 4)
    agent.wait_ready()
    assert kubelet.registered(SIM) == 2
    assert agent.metric(f'device_agent_registrations_total{{cause="Lost",resource="{SIM}"}}') == 1
    kubelet.admit("pod", SIM, 1)


def test_checks_of_the_kubelet_change_nothing_while_it_has_our_devices(
    node: Node, start: Start, kubelet: Kubelet
) -> None:
    paths = [node.device(f"widget{number}") for number in range(2)]
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    agent = start(settings={"allocatable_poll": 0.05})
    kubelet.wait_for("example.com/widget", 2)
    for _ in range(2):
        for path in paths:  # first all devices go, then all come back
            path.unlink()
        until(lambda: kubelet.healthy("example.com/widget") == set(), what="none")
        looks = kubelet.allocatable_calls + 3
        until(lambda looks=looks: kubelet.allocatable_calls > looks, what="looks")
        for path in paths:
            node.device(path.name)
        kubelet.wait_for("example.com/widget", 2)
    assert kubelet.registered("example.com/widget") == 1
    assert agent.said("another plugin has the resource") == []
