"""Which nodes belong to a pool, and which generation is accepted beside the others."""

from dataclasses import replace
from typing import Any

import pytest
from device_agent.contract.config_reasons import ConditionReason
from device_operator.spec.acceptance import Rejected, rejection
from device_operator.spec.placement import Assignment, NodeView, OtherConfig, Overlap, assignment, describe, matches
from device_operator.spec.wording import name_nodes
from device_operator.status.conflicts import with_reported
from device_operator.status.observed import InventoryView
from unit.operator_core.build import KVM, LAB, NOW, ago, counts, device, entry, inventory, node, pools, spec


def labelled(name: str, **labels: str) -> NodeView:
    return node(name, labels=labels)


EDGE = {"name": "edge", "nodeSelector": {"hardware": "edge"}}
LAB_POOL = {"name": "lab", "nodeSelector": {"hardware": "lab"}}
NODES = [labelled("node-1", hardware="edge"), labelled("node-2", hardware="lab"), labelled("node-3")]


def judged(found: Any, *, others: list[OtherConfig] | None = None, nodes: Any = NODES) -> Rejected | None:
    return rejection(LAB, found, nodes=nodes, others=others or [], created=NOW)


def other(name: str = "other", *, age: float = 60, held: Any = None, wanted: Any = None) -> OtherConfig:
    """Another object; `held`, `wanted`: specs."""
    return OtherConfig(
        name=name,
        uid=f"uid-{name}",
        created=ago(age),
        held=held.pools if held else (),
        wanted=wanted.pools if wanted else (),
    )


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, ["node-1", "node-2", "node-3"]),
        ({"nodeSelector": {"hardware": "edge"}}, ["node-1"]),
        ({"nodeSelectorTerms": [{"matchExpressions": [{"key": "hardware", "operator": "Exists"}]}]}, ["node-1", "node-2"]),
        ({"nodeSelectorTerms": [{"matchExpressions": [{"key": "hardware", "operator": "NotIn", "values": ["lab"]}]}]}, ["node-1", "node-3"]),
        ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-3"]}]}]}, ["node-3"]),
        (
            {
                "nodeSelector": {"hardware": "edge"},
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
                ],
            },
            ["node-1"],
        ),
    ],
)  # fmt: skip
def test_nodes_of_a_pool(fields: dict[str, Any], found: list[str]):
    (pool,) = pools({"name": "a", **fields}).pools
    assert [n.name for n in NODES if matches(pool, n)] == found


@pytest.mark.parametrize("labels", [{"kubernetes.io/os": "windows"}, {"kubernetes.io/os": ""}])
def test_nodes_without_the_label_linux_are_in_no_pool(labels: dict[str, str]):
    (pool,) = spec().pools
    assert not matches(pool, node(labels=labels))


def test_each_node_belongs_to_its_pool():
    found = assignment(pools(EDGE, LAB_POOL), nodes=reversed(NODES), others=[])
    assert found.nodes == {"edge": ("node-1",), "lab": ("node-2",)}
    assert found.overlaps == ()


def test_pools_that_share_a_node_are_rejected_and_named():
    found = judged(pools(EDGE, {"name": "all"}))
    assert found is not None
    assert found.reason == "PoolOverlap"
    assert found.message.startswith("pools edge and all both match node node-1: a node may belong to only one pool")


def test_pools_that_share_no_node_now_are_accepted():
    found = pools(EDGE, {"name": "big", "nodeSelector": {"size": "big"}})
    assert judged(found) is None


def test_a_later_overlap_is_reported():
    now = assignment(pools(EDGE, {"name": "all"}), nodes=NODES, others=[])
    assert now.nodes == {"edge": ("node-1",), "all": ("node-2", "node-3")}
    (overlap,) = now.overlaps
    assert (overlap.node, overlap.reason, overlap.pool, overlap.rival) == ("node-1", "PoolOverlap", "edge", "all")


@pytest.mark.parametrize(
    ("rival", "wins"),
    [
        (other(held=spec(), age=-60), "other"),  # accepted earlier, though younger
        (other(wanted=spec(), age=60), "other"),  # both new: the older
        (other(wanted=spec(), age=-60), "lab"),
        (other(wanted=spec(), age=0), "lab"),  # same age: by name
        (other("a", wanted=spec(), age=0), "other"),
        (other(age=60), "lab"),  # rejected itself: nothing of it is in force
    ],
)
def test_the_earlier_of_two_objects_for_one_resource_wins(rival: OtherConfig, wins: str):
    found = judged(spec(), others=[rival])
    assert (found is None) == (wins == "lab")
    if found is not None:
        assert found.reason == "ResourceConflict"
        assert f"DevicePluginConfig {rival.name} serves {KVM} on nodes node-1, node-2, node-3" in found.message
        assert "which pool default matches too" in found.message


@pytest.mark.parametrize(
    "rival",
    [
        spec(resources=[entry("example.com/another")]),
        pools({"name": "a", "nodeSelector": {"hardware": "none"}}),
        pools({"name": "a", "serves": ["example.com/b"]}, resources=[entry(), entry("example.com/b")]),
    ],
    ids=["another resource", "other nodes", "a pool that does not serve it"],
)
def test_objects_without_a_common_node_do_not_conflict(rival: Any):
    assert judged(spec(), others=[other(held=rival)]) is None


def test_pools_that_a_rival_holds_count_beside_those_that_it_wants():
    edge, another = pools(EDGE), spec(resources=[entry("example.com/another")])
    rival = other(age=-60, held=edge, wanted=another)
    found = judged(spec(), others=[rival])
    assert found is not None
    assert f"other serves {KVM} on node node-1, which" in found.message
    assert judged(pools(LAB_POOL), others=[rival]) is None


def test_a_pool_in_two_accepted_specs_of_a_rival_is_reported_once():
    twice = OtherConfig(name="other", uid="u", created=ago(60), held=(*spec().pools, *spec(paused=True).pools))
    found = assignment(spec(), nodes=NODES, others=[twice])
    assert [o.node for o in found.overlaps] == ["node-1", "node-2", "node-3"]


TAKEN = "example.com/ttyS0"


def meeting(
    theirs: list[dict[str, Any]], *, others: list[OtherConfig], agents: dict[str, set[str | None]] | None = None
) -> tuple[Overlap, ...]:
    """The conflicts where LAB reports TAKEN, from a placeholder, on two nodes, and another object `theirs` on one."""
    ours = [counts(TAKEN, entry="example.com/{name}"), counts(KVM)]
    seen: dict[str, list[InventoryView]] = {
        n: [inventory(n, resources=ours), inventory(n, owner="uid-other", resources=found)]
        for n, found in (("node-1", theirs), ("node-2", []))
    }
    everywhere: dict[str, set[str | None]] = {n: {"node-1", "node-2"} for n in ("lab", "other")}
    assigned = assignment(spec(resources=[entry("example.com/{name}"), entry()]), nodes=NODES[:2], others=others)
    found = with_reported(
        assigned,
        others=others,
        on_node=lambda n: seen[n],
        mine=LAB,
        agents_of=lambda config: (agents or everywhere)[config],
    )
    return found.overlaps


STRANGER = other(held=spec(resources=[entry("example.com/else")]))


def test_one_rendered_name_of_two_objects_on_a_node_is_a_conflict():
    (found,) = meeting([counts(TAKEN), counts("example.com/else")], others=[STRANGER])
    assert found == Overlap("node-1", ConditionReason.RESOURCE_CONFLICT, "default", "other", (TAKEN,), reported=True)
    assert describe([found]).startswith(
        "DevicePluginConfig other serves example.com/ttyS0 on node node-1, which pool default matches too"
    )


@pytest.mark.parametrize(
    ("theirs", "others", "agents"),
    [
        ([counts("example.com/else")], [STRANGER], None),
        ([counts(TAKEN, devices=0)], [STRANGER], None),
        ([counts(TAKEN)], [], None),  # deleted: its inventory goes with it
        ([counts(TAKEN)], [STRANGER], {"lab": {"node-1"}, "other": {"node-2", None}}),
        ([counts(TAKEN)], [STRANGER], {"lab": {"node-2"}, "other": {"node-1"}}),
    ],
    ids=["other names", "no devices", "nobody's", "left by its agent", "no agent of ours"],
)
def test_reported_names_that_do_not_conflict(theirs: Any, others: Any, agents: Any):
    assert meeting(theirs, others=others, agents=agents) == ()


GPU = "GPU-09362fb5-0a6c-4b5f-9b0a-3f1d2c4e5a6{}"


def sharing_hardware(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> tuple[Overlap, ...]:
    """Two objects on node-1, under names of their own."""
    seen = [
        inventory(resources=[counts("nvidia.com/gpu")], devices=ours),
        inventory(owner="uid-other", resources=[counts("nvidia.com/gpu.shared")], devices=theirs),
    ]
    return assigned_with(seen).overlaps


def assigned_with(seen: list[InventoryView]) -> Assignment:
    return with_reported(
        assignment(spec(resources=[entry("nvidia.com/gpu")]), nodes=NODES[:1], others=[]),
        others=[STRANGER],
        on_node=lambda _: seen,
        mine=LAB,
        agents_of=lambda _: {"node-1"},
    )


def gpu(number: int = 0, *, name: str = "nvidia.com/gpu", **fields: Any) -> dict[str, Any]:
    return device(GPU.format(number), resource=name, **fields)


SHARED = "nvidia.com/gpu.shared"


def test_one_device_offered_by_two_objects_is_a_conflict():
    (found,) = sharing_hardware([gpu(1, name=SHARED), gpu(2, name=SHARED)], [gpu(2), gpu(1), gpu(0)])
    names = ("nvidia.com/gpu", SHARED)
    assert found == Overlap(
        "node-1", ConditionReason.DEVICE_CONFLICT, "default", "other", names, reported=True, device=GPU.format(1)
    )
    assert describe([found]).startswith(
        f"DevicePluginConfig other and pool default offer the same devices on node node-1, such as {GPU.format(1)}, "
        "as nvidia.com/gpu, nvidia.com/gpu.shared: two pods may get the same device; put such devices into one object"
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ([gpu(1, name=SHARED)], [gpu(0)]),
        ([gpu(0, name=SHARED, offered=False, withheld="HeldAs")], [gpu(0)]),  # nobody gets it
        ([device("/dev/kvm", resource=SHARED)], [device("/dev/kvm", resource="nvidia.com/gpu")]),  # made to be shared
        ([device("3f2a-0000:3b:00.0", resource=SHARED)], [device("0000:3b:00.0", resource="nvidia.com/gpu")]),
        ([gpu(0)], [gpu(0)]),  # of one name: a conflict of resources
    ],
    ids=["others", "held", "a path", "observed only", "one name"],
)
def test_devices_that_do_not_conflict(theirs: Any, ours: Any):
    assert sharing_hardware(theirs, ours) == ()


@pytest.mark.parametrize(
    ("theirs", "ours", "unchecked"),
    [
        ({}, {}, ()),
        ({"devicesOmitted": 3}, {}, ("node-1",)),
        ({}, {"devicesOmitted": 3}, ("node-1",)),
        ({"devicesOmitted": 3, "devices": []}, {}, ("node-1",)),
    ],
    ids=["whole", "theirs cut", "ours cut", "theirs cut to nothing"],
)
def test_a_node_with_a_cut_list_and_no_conflict_is_unchecked(theirs: Any, ours: Any, unchecked: tuple[str, ...]):
    seen = [
        inventory(resources=[counts("nvidia.com/gpu")], **{"devices": [gpu(0)], **ours}),
        inventory(owner="uid-other", resources=[counts(SHARED)], **{"devices": [gpu(1, name=SHARED)], **theirs}),
    ]
    found = assigned_with(seen)
    assert (found.overlaps, found.unchecked) == ((), unchecked)


def test_a_conflict_in_cut_lists_is_reported():
    seen = [
        inventory(resources=[counts("nvidia.com/gpu")], devices=[gpu(0)], devicesOmitted=3),
        inventory(owner="uid-other", resources=[counts(SHARED)], devices=[gpu(0, name=SHARED)], devicesOmitted=3),
    ]
    found = assigned_with(seen)
    assert ([o.reason for o in found.overlaps], found.unchecked) == ([ConditionReason.DEVICE_CONFLICT], ())


def test_a_node_with_an_unreadable_inventory_has_no_conflict_and_is_unchecked():
    theirs = inventory(owner="uid-other", resources=[counts(SHARED)], devices=[gpu(0, name=SHARED)])
    ours = inventory(resources=[counts("nvidia.com/gpu")], devices=[gpu(0)])
    found = assigned_with([ours, replace(theirs, status=None, unreadable="status.devices: must be a list")])
    assert (found.overlaps, found.unchecked) == ((), ("node-1",))


def test_one_pci_address_is_one_device_for_all_sources():
    (found,) = sharing_hardware(
        [device("0000:3b:00.0", resource=SHARED, health="Unknown")], [device("0000:3b:00.0", resource="nvidia.com/gpu")]
    )
    assert (found.reason, found.device) == ("DeviceConflict", "0000:3b:00.0")


def test_a_conflict_of_written_names_is_reported_once():
    found = meeting([counts(KVM)], others=[other(held=spec())])
    assert [(o.node, o.reported) for o in found] == [("node-1", False), ("node-2", False)]


def test_a_message_names_five_nodes_and_counts_the_others():
    many = [node(f"node-{i}") for i in range(9)]
    found = assignment(pools({"name": "a"}, {"name": "b"}), nodes=many, others=[])
    assert "both match nodes node-0, node-1, node-2, node-3, node-4 and 4 more:" in describe(found.overlaps)
    assert name_nodes(["b", "a", "b"]) == "nodes a, b"


def test_each_pair_of_rivals_has_one_sentence():
    found = assignment(pools({"name": "a"}, {"name": "b"}, {"name": "c"}), nodes=NODES, others=[])
    assert describe(found.overlaps).count("a node may belong to only one pool") == 2
