"""Devices, filters, holders, cordons and evictions: what the commands decide."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest
from device_agent.contract.reasons import DeviceHealth
from kubectl_devices.cluster.api import Api, refusal
from kubectl_devices.cluster.kinds import INVENTORIES, NODES, PODS
from kubectl_devices.cluster.reading import Reader
from kubectl_devices.commands.flags import seconds
from kubectl_devices.errors import CliError, ConflictError, ForbiddenError, NotFoundError, RefusedError, TooManyError
from kubectl_devices.model import cordons, eviction, filters, fleet, holders
from kubectl_devices.model.cordons import Target
from kubectl_devices.model.eviction import Verdict
from kubectl_devices.model.filters import Filter
from kubectl_devices.model.table import table
from unit.cli.made import device, inventory, raw_inventory

DEVICES = (
    device("a"),
    device("b", pods=("holder", "other")),
    device("c", health=DeviceHealth.UNHEALTHY, offered=False),
    device("d", node="n2", offered=False, withheld="Cordoned", resource="other.com/x", config="two"),
)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Filter(), "abcd"),
        (Filter(node="n2"), "d"),
        (Filter(node="n?", resource="example.com/*"), "abc"),
        (Filter(config="two"), "d"),
        (Filter(health="unhealthy"), "c"),
        (Filter(offered=False), "cd"),
        (Filter(held=True), "b"),
        (Filter(held=False, offered=True), "a"),
    ],
)
def test_filters_are_joined_by_and(wanted: Filter, ids: str):
    assert "".join(d.id for d in DEVICES if wanted.takes(d)) == ids


def test_a_device_has_one_word_for_its_offer():
    assert [d.offer for d in DEVICES] == ["Yes", "Yes", "No", "Cordoned"]


def test_a_device_is_named_by_id_path_or_identity_and_an_id_wins():
    gpu = device("0", attributes={"uuid": "GPU-1"}, nodes=("/dev/nvidia0",))
    path = device("/dev/nvidia0")
    assert filters.named([gpu, path], "GPU-1") == (gpu,)
    assert filters.named([gpu, path], "/dev/nvidia0") == (path,)
    assert filters.named([gpu], "/dev/nvidia0") == (gpu,)


def test_an_inventory_that_was_cut_or_cannot_be_read_is_told():
    cut = inventory("n1", devices=[{"id": "a"}], devicesOmitted=5)
    broken = fleet.read_inventory({**raw_inventory("n2"), "status": {"devices": "x"}})
    silent = fleet.read_inventory({**raw_inventory("n3"), "status": None})
    found = fleet.from_inventories([silent, broken, cut])
    assert [d.id for d in found.devices] == ["a"]
    assert [remark.partition(" ")[0] for remark in found.remarks] == ["lab.n1", "lab.n2", "lab.n3"]


def test_a_word_of_a_newer_agent_counts_as_unknown_health():
    status = {"nodes": [{"name": "n1", "state": "Serving", "devices": [{"id": "a", "resource": "r", "health": "Odd"}]}]}
    (found,) = fleet.from_configs([{"metadata": {"name": "lab"}, "status": status}]).devices
    assert found.facts.health is DeviceHealth.UNKNOWN


def test_a_pods_devices_are_those_of_its_namespace():
    assert [h.device.id for h in holders.of_pod(DEVICES, "default", "holder")] == ["b"]
    assert holders.of_pod(DEVICES, "elsewhere", "holder") == ()


def asking(*limits: str, node: str = "n1", **status: Any) -> dict[str, Any]:
    containers = [{"resources": {"limits": dict.fromkeys(limits, "1")}}, {}]
    return {"spec": {"containers": containers, "nodeName": node}, "status": status}


WAITS = {"node": "", "conditions": [{"type": "PodScheduled", "message": "Insufficient lab"}]}


@pytest.mark.parametrize(
    ("pod", "devices", "facts"),
    [
        (asking("cpu"), [], ["asks for no device"]),
        (
            asking("example.com/lab", phase="Failed", reason="UnexpectedAdmissionError"),
            [],
            ["UnexpectedAdmissionError"],
        ),
        (asking("example.com/lab", **WAITS), [{"id": "a"}], ["Insufficient lab"]),
        (asking("example.com/lab", phase="Running"), [{"id": "a"}], ["n1"]),
        (asking("example.com/lba", **WAITS), [{"id": "a"}], ["example.com/lba", "did you mean example.com/lab?"]),
        (asking("example.com/fpga", **WAITS), [{"id": "a"}], ["no DevicePluginConfig", "example.com/fpga"]),
        (
            asking("example.com/lab", **WAITS),
            [{"id": "a", "withheld": "Cordoned"}, {"id": "b", "health": "Unhealthy"}],
            ["1 Cordoned, 1 Unhealthy", "kubectl devices uncordon n1 --all"],
        ),
        (
            asking("example.com/lab", **WAITS),
            [{"id": "a", "allocatedTo": [{"namespace": "default", "pod": "p"}]}],
            ["each device of example.com/lab has a holder", "kubectl devices who"],
        ),
    ],
)
def test_a_pod_without_a_device_gets_a_reason(pod: dict[str, Any], devices: list[dict[str, Any]], facts: list[str]):
    found = inventory("n1", "lab", devices=devices).devices
    told = holders.why_nothing(pod, found)
    assert all(fact in told for fact in facts), told


TWO = (
    inventory("n1", "lab", devices=[{"id": "a", "nodes": ["/dev/a"]}, {"id": "b"}], cordoned=[{"id": "old"}]),
    inventory("n1", "two", devices=[{"id": "a"}], cordoned=[{"id": "a", "reason": "theirs"}]),
    inventory("n2", "lab", devices=[{"id": "z"}]),
)
Choose = Callable[..., tuple[Target, ...]]


def choose(function: Choose, *devices: str, node: str = "n1", everything: bool = False, config: str = "") -> Any:
    found = function(TWO, node=node, devices=devices, everything=everything, config=config)
    return {t.inventory: t.ids for t in found}


def test_a_device_of_two_configurations_is_cordoned_once_and_uncordoned_everywhere():
    assert choose(cordons.to_cordon, "a", "/dev/a") == {"lab.n1": ("a",)}
    assert choose(cordons.to_cordon, "a", config="two") == {"two.n1": ("a",)}
    assert choose(cordons.to_uncordon, "a") == {"two.n1": ("a",)}
    assert choose(cordons.to_uncordon, "old") == {"lab.n1": ("old",)}  # a device that is gone
    assert choose(cordons.to_cordon, everything=True) == {"lab.n1": ("*",), "two.n1": ("*",)}
    assert choose(cordons.to_uncordon, everything=True) == {"lab.n1": ("old",), "two.n1": ("a",)}
    assert choose(cordons.to_uncordon, everything=True, node="n2") == {}


@pytest.mark.parametrize(
    ("function", "device", "node"),
    [(cordons.to_cordon, "z", "n1"), (cordons.to_cordon, "a", "n3"), (cordons.to_uncordon, "b", "n1")],
)
def test_what_is_not_there_is_refused(function: Choose, device: str, node: str):
    with pytest.raises(CliError):
        choose(function, device, node=node)


def test_cordons_of_others_stay_and_a_reason_replaces_one():
    items = ({"id": "a", "reason": "theirs"},)
    assert cordons.added(items, ["a"], reason="") == items
    assert cordons.added(items, ["a", "b"], reason="ours") == (
        {"id": "a", "reason": "ours"},
        {"id": "b", "reason": "ours"},
    )
    assert cordons.removed(({"id": "a"}, {"id": "b"}), ["a"]) == ({"id": "b"},)


def test_the_devices_of_a_cordon_of_everything_are_all_of_the_inventory():
    assert [d.id for d in cordons.targeted(TWO, [Target("lab.n1", ("*",))])] == ["a", "b"]
    assert [d.id for d in cordons.targeted(TWO, [Target("lab.n1", ("b",))])] == ["b"]


OWNED = {"ownerReferences": [{"kind": "ReplicaSet", "controller": True}]}
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}


@pytest.mark.parametrize(
    ("pod", "verdict"),
    [
        (None, Verdict.GONE),
        ({"metadata": OWNED, "status": {"phase": "Succeeded"}}, Verdict.GONE),
        ({"metadata": OWNED, "status": {"phase": "Running"}}, Verdict.EVICT),
        ({"metadata": MIRROR}, Verdict.STATIC),
        ({"metadata": {}}, Verdict.UNMANAGED),
    ],
)
def test_a_drain_judges_each_holder(pod: dict[str, Any] | None, verdict: Verdict):
    assert eviction.judged("ns", "p", pod).verdict is verdict


def test_force_ends_pods_without_a_controller_and_no_static_ones():
    alone, static = (
        eviction.judged("ns", "alone", {"metadata": {}}),
        eviction.judged("ns", "static", {"metadata": MIRROR}),
    )
    assert len(eviction.objections([alone, static], force=False)) == 2
    (left,) = eviction.objections([alone, static], force=True)
    assert "ns/static" in left


def test_a_table_is_aligned_and_control_characters_do_not_reach_the_terminal():
    text = table("NODE LONG_HEADING", [("n1", "a\x1b[31mb"), ("", "c")]).text()
    assert text == "NODE   LONG HEADING\nn1     a [31mb\n-      c\n"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (403, 'nodes is forbidden: User "u" cannot list resource', ForbiddenError),
        (403, "pods is forbidden: violates PodSecurity", RefusedError),
        (404, "", NotFoundError),
        (409, "modified", ConflictError),
        (429, "budget", TooManyError),
        (500, "", RefusedError),
        (401, "Unauthorized", RefusedError),
    ],
)
def test_each_refusal_of_the_api_server_has_a_type_and_one_line(status: int, message: str, kind: type):
    error = refusal(status, message, verb="list", resource="nodes")
    assert type(error) is kind
    assert "\n" not in str(error)


def test_a_long_list_is_read_in_pages_and_a_missing_right_is_noted_once():
    asked: list[Any] = []

    def transport(_method: str, path: str, *, query: Any, **_: Any) -> tuple[int, bytes, str]:
        asked.append(query)
        if path == PODS.path():
            return 403, b'{"message": "pods is forbidden: User \\"u\\" cannot list"}', ""
        more = '"continue": "t"' if "continue" not in query else ""
        return 200, f'{{"metadata": {{{more}}}, "items": [{{}}]}}'.encode(), ""

    reader = Reader(Api(transport))
    assert reader.items(NODES, lost="x") == [{}, {}]
    assert asked[1]["continue"] == "t"
    assert reader.items(PODS, lost="holders") is reader.items(PODS, lost="holders") is None
    (gap,) = reader.gaps
    assert "list pods" in gap
    assert reader.refused("list", PODS)
    assert not reader.refused("list", INVENTORIES)


@pytest.mark.parametrize(
    ("text", "number"), [("30", 30), ("30s", 30), ("1m30s", 90), ("2h", 7200), ("8760h", 31_536_000)]
)
def test_times_read_as_those_of_kubectl(text: str, number: float):
    assert seconds(text) == number


@pytest.mark.parametrize("text", ["", "x", "5d", "0", "-1s", "99999999h", "9" * 400])
def test_a_time_that_is_none_is_refused(text: str):
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)
