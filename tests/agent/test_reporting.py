"""The node's inventory, as it reaches an API server."""

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pytest
from agent.apiserver import OBJECTS, ApiServer
from agent.harness import AgentProcess, Node, Start, document, files, simulated
from agent.standin import Kubelet, until

SIM = "example.com/sim"
UID = "0b7e6a3c-1111-4222-8333-444455556666"
ENV = {"NODE_NAME": "node-1", "CONFIG_NAME": "lab", "CONFIG_UID": UID, "POOL_NAME": "edge"}
NAME = "lab.node-1"


def reporting(start: Start, api: ApiServer, *arguments: str, **settings: float) -> AgentProcess:
    return start("--report=api", f"--api-server={api.url}", *arguments, env=ENV, settings=settings)


def status(api: ApiServer) -> dict[str, Any]:
    return api.objects.get(NAME, {}).get("status", {})


def resource(api: ApiServer, name: str = SIM) -> dict[str, Any]:
    return next((r for r in status(api).get("resources", ()) if r["name"] == name), {})


def test_the_inventory_is_created_and_says_what_there_is(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer
) -> None:
    node.device("widget0")
    sha256 = node.configure(document(simulated(count=2), files("example.com/widget", "/dev/widget*")))
    reporting(start, api)
    until(lambda: resource(api).get("registered") and resource(api, "example.com/widget").get("registered"), what="all")
    found = api.objects[NAME]
    assert found["spec"] == {"nodeName": "node-1", "configName": "lab"}
    assert found["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "device-operator.io/v1alpha1", "kind": "DevicePluginConfig",
            "name": "lab", "uid": UID, "controller": False,
        }
    ]  # fmt: skip
    assert status(api)["poolName"] == "edge"
    assert status(api)["observedConfigHash"] == sha256
    assert status(api)["podResources"] == "Available"
    assert "configError" not in status(api)
    assert status(api)["summary"] == {
        "devices": 3, "healthy": 3, "unhealthy": 0, "unknown": 0, "withheld": 0, "capacity": 3, "allocated": 0
    }  # fmt: skip
    assert resource(api)["devices"] == 2
    for moment in (resource(api)["lastRegistrationTime"], status(api)["lastHeartbeatTime"]):
        age = dt.datetime.now(tz=dt.UTC) - dt.datetime.fromisoformat(moment)
        assert age < dt.timedelta(seconds=60)
    (widget,) = (d for d in status(api)["devices"] if d["resource"] == "example.com/widget")
    assert widget["nodes"] == ["/dev/widget0"]
    assert widget["health"] == "Healthy"
    assert widget["attributes"]["path"] == "/dev/widget0"


def test_holders_appear_and_go(node: Node, kubelet: Kubelet, start: Start, api: ApiServer) -> None:
    node.configure(document(simulated(count=2)))
    reporting(start, api)
    kubelet.wait_for(SIM, 2)
    kubelet.admit("pod", SIM, 1)
    (device,) = kubelet.ids_of("pod", SIM)
    until(lambda: resource(api).get("allocated") == 1, what="allocated")
    assert {d["id"]: d.get("allocatedTo") for d in status(api)["devices"]}[device] == [
        {"namespace": "default", "pod": "pod", "container": "main"}
    ]
    kubelet.delete("pod")
    until(lambda: resource(api).get("allocated") == 0, what="released")
    assert not any("allocatedTo" in d for d in status(api)["devices"])


def test_a_corrected_configuration_clears_the_error(node: Node, kubelet: Kubelet, start: Start, api: ApiServer) -> None:
    good = node.configure(document(simulated(count=2)))
    reporting(start, api)
    until(lambda: status(api).get("observedConfigHash") == good, what="first report")
    node.configure(b"{")
    until(lambda: "not valid JSON" in status(api).get("configError", ""), what="the error")
    assert status(api)["observedConfigHash"] == good
    mended = node.configure(document(simulated(count=3)))
    until(lambda: status(api).get("observedConfigHash") == mended, what="mended")
    assert "configError" not in status(api)


def test_a_deleted_inventory_is_created_again(node: Node, kubelet: Kubelet, start: Start, api: ApiServer) -> None:
    node.configure(document(simulated(count=2)))
    reporting(start, api)
    until(lambda: resource(api).get("registered"), what="first report")
    del api.objects[NAME]
    kubelet.admit("pod", SIM, 1)
    until(lambda: resource(api).get("allocated") == 1, what="made again")


def test_an_object_made_by_a_request_whose_answer_was_lost_is_used(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer
) -> None:
    node.configure(document(simulated(count=2)))
    api.objects[NAME] = {"metadata": {"name": NAME}}
    api.orders = [(404, {}), (409, {})]
    reporting(start, api)
    until(lambda: resource(api).get("registered"), what="reported")


def test_an_unchanged_inventory_is_not_written(node: Node, kubelet: Kubelet, start: Start, api: ApiServer) -> None:
    node.configure(document(simulated(count=2)))
    reporting(start, api, report_first=0)
    until(lambda: resource(api).get("registered"), what="reported")
    scans = kubelet.list_calls
    until(lambda: kubelet.list_calls > scans + 5, what="several rounds of nothing new")
    writes = tuple(api.written)
    without_time = [{k: v for k, v in w.items() if k != "lastHeartbeatTime"} for w in writes]
    assert all(a != b for a, b in itertools.pairwise(without_time))


def test_the_heartbeat_is_written_without_a_change(node: Node, kubelet: Kubelet, start: Start, api: ApiServer) -> None:
    node.configure(document(simulated(count=2)))
    reporting(start, api, heartbeat=0.3)
    until(lambda: resource(api).get("registered"), what="reported")
    before = len(api.written)
    until(lambda: len(api.written) >= before + 3, what="three heartbeats")


def test_after_an_outage_of_the_api_server_the_inventory_is_written(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer
) -> None:
    api.down = True
    node.configure(document(simulated(count=2)))
    agent = reporting(start, api)
    kubelet.wait_for(SIM, 2)
    agent.wait_ready()
    kubelet.admit("pod", SIM, 1)
    record = agent.wait_said("the inventory is not written")
    assert "503 down for a while" in record["error"]
    until(lambda: (agent.metric("device_agent_report_errors_total") or 0) >= 3, what="tried again")
    assert len(agent.said("the inventory is not written", level="warning")) == 1
    api.down = False
    until(lambda: resource(api).get("allocated") == 1, what="caught up")


def test_retry_after_is_respected(node: Node, kubelet: Kubelet, start: Start, api: ApiServer) -> None:
    api.orders = [(429, {"Retry-After": "1"})]
    node.configure(document(simulated(count=2)))
    reporting(start, api)
    until(lambda: resource(api).get("registered"), what="reported")
    (first, *_), (second, *_) = api.requests[:2]
    assert second - first >= 1


@pytest.mark.parametrize("asked", ["nan", "inf", "1e12", "-5", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_an_invalid_retry_after_stops_nothing(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, asked: str
) -> None:
    api.orders = [(429, {"Retry-After": asked})]
    node.configure(document(simulated(count=2)))
    reporting(start, api, heartbeat=0.5)
    until(lambda: resource(api).get("registered"), what="reported")


def test_the_token_is_read_anew_for_each_request(
    node: Node, kubelet: Kubelet, start: Start, api: ApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    node.configure(document(simulated(count=2)))
    reporting(start, api, f"--token-file={token}", heartbeat=0.2)
    until(lambda: "Bearer first" in api.tokens, what="the first token")
    token.write_text("second\n")
    until(lambda: "Bearer second" in api.tokens, what="the second token")


def test_the_agent_requests_only_its_own_object(node: Node, kubelet: Kubelet, start: Start, api: ApiServer) -> None:
    node.configure(document(simulated(count=2)))
    reporting(start, api)
    until(lambda: resource(api).get("registered"), what="reported")
    assert {(method, path) for _, method, path, _ in api.requests} == {
        ("PATCH", f"{OBJECTS}/{NAME}/status"),
        ("POST", OBJECTS),
    }
