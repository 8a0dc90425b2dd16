"""Register, device list, Allocate: what happens for every pod with a device."""

import grpc
import pytest
from agent.harness import Node, Start, document, files, simulated
from agent.standin import Kubelet, PodRejectedError, until
from device_agent.kubelet import rpc
from device_agent.kubelet.proto import deviceplugin_pb2 as dp

SIM = "example.com/sim"


def test_a_device_is_offered_and_a_pod_gets_its_node(node: Node, kubelet: Kubelet, start: Start) -> None:
    node.device("widget0")
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    agent = start()
    (device,) = kubelet.wait_for("example.com/widget", 1)
    answer = kubelet.admit("pod", "example.com/widget", 1)
    assert [(d.host_path, d.container_path, d.permissions) for d in answer.devices] == [
        ("/dev/widget0", "/dev/widget0", "rw")
    ]
    assert kubelet.ids_of("pod", "example.com/widget") == [device]
    agent.wait_ready()
    until(lambda: agent.metric('device_agent_allocations_total{resource="example.com/widget"}') == 1, what="counted")
    until(lambda: agent.metric('device_agent_allocated{resource="example.com/widget"}') == 1, what="holder seen")


def test_every_resource_is_registered_once(node: Node, kubelet: Kubelet, start: Start) -> None:
    names = [f"example.com/sim{i}" for i in range(8)]
    node.configure(document(*(simulated(name, 2) for name in names)))
    agent = start()
    for name in names:
        kubelet.wait_for(name, 2)
    agent.wait_ready()
    assert [kubelet.registered(name) for name in names] == [1] * 8
    assert [len(kubelet.lists[name]) for name in names] == [1] * 8
    assert len(node.sockets()) == 8


def test_replicas_share_a_device_and_the_first_has_the_bare_id(node: Node, kubelet: Kubelet, start: Start) -> None:
    node.device("tun")
    node.configure(document(files("example.com/tun", "/dev/tun", sharing={"replicas": 3, "maxPerContainer": 1})))
    start()
    ids = kubelet.wait_for("example.com/tun", 3)
    (bare,) = (i for i in ids if "::" not in i)
    assert ids == {bare, f"{bare}::1", f"{bare}::2"}
    for pod in ("a", "b", "c"):
        answer = kubelet.admit(pod, "example.com/tun", 1)
        assert [d.host_path for d in answer.devices] == ["/dev/tun"]
    assert kubelet.held("example.com/tun") == ids


def test_too_many_for_one_container_is_refused_with_a_text_for_the_pod(
    node: Node, kubelet: Kubelet, start: Start
) -> None:
    node.configure(document(simulated(sharing={"maxPerContainer": 2})))
    agent = start()
    kubelet.wait_for("example.com/sim", 4)
    with pytest.raises(PodRejectedError) as rejected:
        kubelet.admit("greedy", "example.com/sim", 3)
    assert str(rejected.value) == (
        "rpc error: code = INVALID_ARGUMENT desc = example.com/sim: 3 requested, a container may have at most 2 "
        "(sharing.maxPerContainer)"
    )
    kubelet.admit("modest", "example.com/sim", 2)
    assert agent.metric('device_agent_allocation_errors_total{reason="WrongNumber",resource="example.com/sim"}') == 1


def test_a_preferred_allocation_stays_on_one_numa_node(node: Node, kubelet: Kubelet, start: Start) -> None:
    entry = {"name": "example.com/sim", "devices": [{"simulated": {"count": 8, "numaNodes": 2}}]}
    node.configure(document(entry | {"allocation": {"policy": "Topology"}}))
    start()
    kubelet.wait_for("example.com/sim", 8)
    places = {i: nodes for i, (_, nodes) in kubelet.devices["example.com/sim"].items()}
    assert sorted(places.values()) == [(0,)] * 4 + [(1,)] * 4
    for pod in ("a", "b"):
        kubelet.admit(pod, "example.com/sim", 4)
        assert len({places[i] for i in kubelet.ids_of(pod, "example.com/sim")}) == 1


def test_topology_hints_can_be_left_out(node: Node, kubelet: Kubelet, start: Start) -> None:
    entry = {"name": "example.com/sim", "devices": [{"simulated": {"count": 2, "numaNodes": 2}}]}
    node.configure(document(entry | {"allocation": {"topologyHints": "Omit"}}))
    start()
    kubelet.wait_for("example.com/sim", 2)
    assert {nodes for _, nodes in kubelet.devices["example.com/sim"].values()} == {()}


def test_a_preference_is_offered_only_if_it_could_matter(node: Node, kubelet: Kubelet, start: Start) -> None:
    node.configure(document(simulated("example.com/one", sharing={"maxPerContainer": 1}), simulated("example.com/any")))
    start()
    kubelet.wait_for("example.com/one", 4)
    kubelet.wait_for("example.com/any", 4)
    assert not kubelet.clients["example.com/one"].options.get_preferred_allocation_available
    assert kubelet.clients["example.com/any"].options.get_preferred_allocation_available
    assert not kubelet.clients["example.com/any"].options.pre_start_required


def test_a_device_that_vanishes_while_held_is_listed_unhealthy_until_it_is_free(
    node: Node, kubelet: Kubelet, start: Start
) -> None:
    gone, stays = node.device("widget0"), node.device("widget1")
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    start()
    ids = kubelet.wait_for("example.com/widget", 2)
    for pod in ("a", "b"):
        kubelet.admit(pod, "example.com/widget", 1)
    held = {pod: kubelet.ids_of(pod, "example.com/widget")[0] for pod in ("a", "b")}
    (lost,) = (i for i in ids if gone.name in i)
    (kept,) = (i for i in ids if stays.name in i)
    gone.unlink()
    until(lambda: kubelet.health("example.com/widget") == {lost: "Unhealthy", kept: "Healthy"}, what="unhealthy")
    lists = kubelet.list_calls
    until(lambda: kubelet.list_calls > lists + 3, what="a few more questions to PodResources")
    assert kubelet.health("example.com/widget") == {lost: "Unhealthy", kept: "Healthy"}
    kubelet.delete(next(pod for pod, device in held.items() if device == lost))
    until(lambda: kubelet.health("example.com/widget") == {kept: "Healthy"}, what="dropped once free")


def test_an_incomplete_list_of_pods_frees_nothing(node: Node, kubelet: Kubelet, start: Start) -> None:
    gone = node.device("widget0")
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    kubelet.checkpoint.begin(("default", "agent-pod"))
    agent = start(env={"POD_NAMESPACE": "default", "POD_NAME": "agent-pod"})
    (lost,) = kubelet.wait_for("example.com/widget", 1)
    kubelet.admit("pod", "example.com/widget", 1)
    gone.unlink()
    until(lambda: kubelet.health("example.com/widget") == {lost: "Unhealthy"}, what="unhealthy")
    kubelet.checkpoint.running.clear()
    agent.wait_said("holders are unknown", error="the kubelet has not yet heard of all its pods")
    lists = kubelet.list_calls
    until(lambda: kubelet.list_calls > lists + 3, what="a few more empty lists")
    assert kubelet.health("example.com/widget") == {lost: "Unhealthy"}
    kubelet.checkpoint.begin(("default", "agent-pod"))
    until(lambda: kubelet.health("example.com/widget") == {}, what="dropped once a whole list shows it free")


def test_a_device_that_vanishes_without_an_open_stream_is_listed_unhealthy_before_it_is_dropped(
    node: Node, kubelet: Kubelet, start: Start
) -> None:
    gone = node.device("widget0")
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    agent = start()
    (lost,) = kubelet.wait_for("example.com/widget", 1)
    kubelet.fail_register = "not now"
    kubelet.clients["example.com/widget"].stream.cancel()
    agent.wait_said("not registered")
    gone.unlink()
    agent.wait_said("device unhealthy")
    lists = kubelet.list_calls
    until(lambda: kubelet.list_calls > lists + 5, what="a few answers that show it free")
    told = len(kubelet.lists["example.com/widget"])
    kubelet.fail_register = None
    until(lambda: kubelet.health("example.com/widget") == {}, seconds=30, what="dropped")
    assert [health for _, health in kubelet.lists["example.com/widget"][told:]] == [{lost: "Unhealthy"}, {}]


def test_a_device_that_comes_back_is_healthy_again(node: Node, kubelet: Kubelet, start: Start) -> None:
    path = node.device("widget0")
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    start()
    (device,) = kubelet.wait_for("example.com/widget", 1)
    kubelet.admit("pod", "example.com/widget", 1)
    path.unlink()
    until(lambda: kubelet.health("example.com/widget") == {device: "Unhealthy"}, what="unhealthy")
    node.device("widget0")
    until(lambda: kubelet.health("example.com/widget") == {device: "Healthy"}, what="healthy again")
    assert kubelet.registered("example.com/widget") == 1


def test_a_device_that_appears_is_offered(node: Node, kubelet: Kubelet, start: Start) -> None:
    node.configure(document(files("example.com/widget", "/dev/widget*")))
    agent = start()
    agent.wait_ready()
    assert kubelet.registered("example.com/widget") == 0
    node.device("widget0")
    kubelet.wait_for("example.com/widget", 1)
    node.device("widget1")
    kubelet.wait_for("example.com/widget", 2)
    assert kubelet.registered("example.com/widget") == 1


def test_ten_thousand_ids_are_one_list(node: Node, kubelet: Kubelet, start: Start) -> None:
    node.configure(document(simulated(count=10, sharing={"replicas": 1000})))
    start()
    kubelet.wait_for("example.com/sim", 10_000)
    answer = kubelet.admit("pod", "example.com/sim", 5)
    assert answer is not None


def test_an_unknown_id_is_refused_by_name(node: Node, kubelet: Kubelet, start: Start) -> None:
    node.configure(document(simulated()))
    start()
    kubelet.wait_for("example.com/sim", 4)
    kubelet.devices["example.com/sim"] = {"made-up": ("Healthy", ())}
    with pytest.raises(PodRejectedError, match=r"INVALID_ARGUMENT desc = example\.com/sim: unknown device made-up"):
        kubelet.admit("pod", "example.com/sim", 1)


def call(kubelet: Kubelet, method: rpc.Method, request: object) -> object:
    """Requests that the kubelet would not send, sent to the plugin's socket."""
    path = kubelet.directory / kubelet.clients[SIM].endpoint
    with grpc.insecure_channel(f"unix:{path}", options=(rpc.LOCAL_AUTHORITY,)) as channel:
        return channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )(request, timeout=10)


def test_several_containers_in_one_call_are_answered_in_their_order(node: Node, kubelet: Kubelet, start: Start) -> None:
    entry = simulated(inject={"env": [{"name": "DEVICES", "value": "{name}"}]})
    node.configure(document(entry))
    start()
    ids = sorted(kubelet.wait_for(SIM, 4))
    containers = [dp.ContainerAllocateRequest(devices_ids=those) for those in ([ids[2]], [ids[1], ids[0]], [ids[3]])]
    answer = call(kubelet, rpc.ALLOCATE, dp.AllocateRequest(container_requests=containers))
    assert [c.envs["DEVICES"] for c in answer.container_responses] == [ids[2], f"{ids[0]},{ids[1]}", ids[3]]


@pytest.mark.parametrize(
    "asked",
    [
        {"available_deviceIDs": [], "allocation_size": 0},
        {"available_deviceIDs": [], "allocation_size": 3},
        {"available_deviceIDs": ["unknown"], "allocation_size": 1},
        {"must_include_deviceIDs": ["unknown"], "allocation_size": 1},
        {"available_deviceIDs": ["a", "a"], "must_include_deviceIDs": ["b"], "allocation_size": -1},
        {"available_deviceIDs": [str(n) for n in range(5000)], "allocation_size": 2_000_000_000},
    ],
)
def test_a_preference_is_never_an_error(
    node: Node, kubelet: Kubelet, start: Start, asked: dict[str, list[str] | int]
) -> None:
    node.configure(document(simulated()))
    start()
    kubelet.wait_for(SIM, 4)
    container = dp.ContainerPreferredAllocationRequest(**asked)
    answer = call(kubelet, rpc.PREFERRED, dp.PreferredAllocationRequest(container_requests=[container] * 2))
    assert len(answer.container_responses) == 2


def test_pre_start_is_answered_although_it_is_not_required(node: Node, kubelet: Kubelet, start: Start) -> None:
    node.configure(document(simulated()))
    start()
    (device, *_) = kubelet.wait_for(SIM, 4)
    assert call(kubelet, rpc.PRE_START, dp.PreStartContainerRequest(devices_ids=[device])) is not None
