"""An admin cordons devices in the inventory, and takes the cordons away again."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent.apiserver import ApiServer
from agent.harness import AgentProcess, Node, Start, document, files
from agent.standin import Kubelet, PodRejectedError, until

WIDGET, GADGET = "example.com/widget", "example.com/gadget"
EDGE = {"NODE_NAME": "node-1", "CONFIG_NAME": "edge", "POOL_NAME": "all", "CONFIG_UID": "0b7e6a3c-1111"}
LAB = {**EDGE, "CONFIG_NAME": "lab", "CONFIG_UID": "11111111-2222-4333-8444-555555555555"}
INVENTORY = "edge.node-1"
FIRST, SECOND = "/dev/widget0", "/dev/widget1"


@pytest.fixture(autouse=True)
def widgets(node: Node) -> tuple[Path, ...]:
    return tuple(node.device(f"widget{number}") for number in range(3))


def reporting(start: Start, api: ApiServer, *, env: dict[str, str] = EDGE) -> AgentProcess:
    return start("--report=api", f"--api-server={api.url}", env=env)


def serving(node: Node, start: Start, kubelet: Kubelet, api: ApiServer, **fields: Any) -> AgentProcess:
    """An agent that offers three widgets and has written its inventory."""
    node.configure(document(files(WIDGET, "/dev/widget*", **fields)))
    agent = reporting(start, api)
    kubelet.wait_for(WIDGET, 3)
    until(lambda: told(api), what="the inventory")
    return agent


def cordon(api: ApiServer, *items: tuple[str, str], inventory: str = INVENTORY) -> None:
    """kubectl patch ndi."""
    api.objects[inventory]["spec"]["cordoned"] = [{"id": i, "reason": why} for i, why in items]


def told(api: ApiServer, inventory: str = INVENTORY) -> dict[str, dict[str, Any]]:
    """The inventory's devices by id."""
    devices = api.objects.get(inventory, {}).get("status", {}).get("devices", ())
    return {device["id"]: device for device in devices}


def withheld(api: ApiServer, inventory: str = INVENTORY) -> dict[str, str]:
    return {i: d["withheld"] for i, d in told(api, inventory).items() if "withheld" in d}


def test_a_cordoned_device_is_given_to_no_new_pod_until_the_cordon_is_gone(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    agent = serving(node, start, kubelet, api)
    kubelet.admit("holder", WIDGET, 1)
    (held,) = kubelet.held(WIDGET)
    cordon(api, (held, "swap the cable"))
    until(lambda: held not in kubelet.healthy(WIDGET), what="withheld")
    until(lambda: withheld(api) == {held: "Cordoned"}, what="told")
    device = told(api)[held]
    assert (device["health"], device["offered"]) == ("Healthy", False)
    assert "swap the cable" in device["message"]
    assert device["allocatedTo"] == [{"namespace": "default", "pod": "holder", "container": "main"}]
    summary = api.objects[INVENTORY]["status"]["summary"]
    assert (summary["healthy"], summary["unhealthy"], summary["withheld"]) == (3, 0, 1)
    assert agent.wait_said("device withheld", device=held)["reason"] == "Cordoned"
    kubelet.delete("holder")
    for number in range(2):
        kubelet.admit(f"pod{number}", WIDGET, 1)
    with pytest.raises(PodRejectedError):
        kubelet.admit("one too many", WIDGET, 1)
    assert held not in kubelet.held(WIDGET)
    cordon(api)
    kubelet.wait_for(WIDGET, 3)
    kubelet.admit("next", WIDGET, 1)
    assert held in kubelet.held(WIDGET)


def test_a_cordon_survives_a_killed_agent_while_the_api_server_is_away(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    first = serving(node, start, kubelet, api)
    kubelet.admit("holder", WIDGET, 1)
    (held,) = kubelet.held(WIDGET)
    cordon(api, (held, "recall"))
    kubelet.wait_for(WIDGET, 2)
    until(lambda: kept(node, EDGE) == {held, ""}, what="on the node's disk")
    first.kill()
    until(lambda: not kubelet.healthy(WIDGET), what="the kubelet saw it go")
    api.down = True
    reporting(start, api)
    assert held not in kubelet.wait_for(WIDGET, 2)
    api.objects[INVENTORY]["spec"]["cordoned"] = []  # an admin took it away meanwhile
    api.down = False
    kubelet.wait_for(WIDGET, 3)
    until(lambda: kept(node, EDGE) == {""}, what="gone from the node's disk")


def test_an_inventory_that_is_made_anew_has_the_cordons(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    serving(node, start, kubelet, api)
    cordon(api, (FIRST, "recall"), ("no-such-device", "typo"))
    kubelet.wait_for(WIDGET, 2)
    before = api.objects[INVENTORY]["spec"]
    del api.objects[INVENTORY]
    until(lambda: INVENTORY in api.objects, what="made anew")
    assert api.objects[INVENTORY]["spec"] == before
    until(lambda: withheld(api) == {FIRST: "Cordoned"}, what="told")
    assert kubelet.healthy(WIDGET) == {SECOND, "/dev/widget2"}
    assert "no-such-device" in api.objects[INVENTORY]["status"]["cordonMessage"]


def test_an_object_that_is_made_anew_has_the_cordons_of_its_predecessor(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    first = serving(node, start, kubelet, api)
    cordon(api, (FIRST, "recall"))
    kubelet.wait_for(WIDGET, 2)
    until(lambda: kept(node, EDGE) == {FIRST, ""}, what="on the node's disk")
    first.terminate()
    del api.objects[INVENTORY]  # deleted with its owner
    reporting(start, api, env={**EDGE, "CONFIG_UID": LAB["CONFIG_UID"]})
    kubelet.wait_for(WIDGET, 2)
    until(lambda: withheld(api) == {FIRST: "Cordoned"}, what="told")
    assert api.objects[INVENTORY]["spec"]["cordoned"] == [{"id": FIRST, "reason": "recall"}]
    cordon(api)
    kubelet.wait_for(WIDGET, 3)


def test_a_cordon_counts_for_another_object_that_has_the_hardware_too(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    """The second object only observes, so both serve the hardware at once."""
    serving(node, start, kubelet, api)
    config = node.root / "lab.json"
    config.write_text(json.dumps(document(files(GADGET, "/dev/widget*", ownership="None"))))
    start("--report=api", f"--api-server={api.url}", f"--config={config}", env=LAB)
    kubelet.wait_for(GADGET, 3)
    cordon(api, (FIRST, "recall"))
    until(lambda: set(withheld(api, "lab.node-1").values()) == {"Cordoned"}, what="the observer's")
    (device,) = [d for d in told(api, "lab.node-1").values() if "withheld" in d]
    assert "edge" in device["message"]
    cordon(api)
    until(lambda: withheld(api, "lab.node-1") == {}, what="given back")


def test_a_cordon_ends_with_its_object(node: Node, start: Start, kubelet: Kubelet, api: ApiServer) -> None:
    """Nobody could take it away: the inventory that had it is gone."""
    first = serving(node, start, kubelet, api)
    cordon(api, (FIRST, "recall"))
    until(lambda: kept(node, EDGE) == {FIRST, ""}, what="on the node's disk")
    first.terminate()
    node.configure(document(files(GADGET, "/dev/widget*")))
    reporting(start, api, env=LAB)
    assert FIRST not in kubelet.wait_for(GADGET, 2)
    until(lambda: withheld(api, "lab.node-1") == {FIRST: "Cordoned"}, what="it counts while the object exists")
    del api.objects[INVENTORY]
    kubelet.wait_for(GADGET, 3)


def test_all_that_an_object_serves_is_cordoned_with_every_replica(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    node.configure(document(files(WIDGET, "/dev/widget*", sharing={"replicas": 2, "maxPerContainer": 1})))
    reporting(start, api)
    kubelet.wait_for(WIDGET, 6)
    until(lambda: told(api), what="the inventory")
    cordon(api, ("*", "maintenance"))
    until(lambda: kubelet.healthy(WIDGET) == set(), what="all withheld")
    node.device("widget3")
    until(lambda: len(kubelet.health(WIDGET)) == 8, what="a device that came later")
    assert kubelet.healthy(WIDGET) == set()
    cordon(api)
    kubelet.wait_for(WIDGET, 8)


def test_a_rule_of_the_configuration_cordons_by_attribute(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    serving(node, start, kubelet, api)
    rule = {"match": {"attribute": "path", "values": ["/dev/widget[01]"]}, "reason": "recall"}
    node.configure({**document(files(WIDGET, "/dev/widget*")), "cordon": [rule]})
    assert kubelet.wait_for(WIDGET, 1) == {"/dev/widget2"}
    until(lambda: set(withheld(api)) == {FIRST, SECOND}, what="told")
    assert "spec.cordon[0]" in told(api)[FIRST]["message"]
    node.configure(document(files(WIDGET, "/dev/widget*")))
    kubelet.wait_for(WIDGET, 3)


def test_an_edit_that_narrows_a_source_drains_what_is_held_and_names_the_field(
    node: Node, start: Start, kubelet: Kubelet, api: ApiServer
) -> None:
    first = serving(node, start, kubelet, api)
    kubelet.admit("holder", WIDGET, 3)
    node.configure(document(files(WIDGET, SECOND, health={"removalGraceSeconds": 60})))
    until(lambda: withheld(api) == {FIRST: "Draining", "/dev/widget2": "Draining"}, what="told")
    assert "devices[0].files.paths no longer selects it" in told(api)[FIRST]["message"]
    assert {d["health"] for d in told(api).values()} == {"Healthy"}
    first.kill()
    until(lambda: not kubelet.healthy(WIDGET), what="the kubelet saw it go")
    reporting(start, api)
    kubelet.wait_for(WIDGET, 1)
    until(lambda: withheld(api) == {FIRST: "Draining", "/dev/widget2": "Draining"}, what="told after a restart, too")


def kept(node: Node, env: dict[str, str]) -> set[str]:
    """Ids in the node store."""
    file = node.plugins / "device-operator" / "cordons" / f"{env['CONFIG_UID']}.json"
    try:
        return {item["id"] for item in json.loads(file.read_bytes())["items"]}
    except (OSError, ValueError):
        return {"unreadable"}
