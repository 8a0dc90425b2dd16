"""Properties of selection for every node and every document."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from device_agent.contract import names
from device_agent.contract.document import Document, Ownership
from device_agent.contract.template import parse_template
from device_agent.select.found import DeviceNodes, Findings, FoundDevice
from device_agent.select.selection import select
from device_agent.select.unit import Selection
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.select.finds import SOURCES, documented, grouped

CONTAINER = ("/dev/vfio/vfio",)
ADDRESSES = [f"0000:0{bus}:00.{function}" for bus in range(3) for function in range(2)]


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, list[FoundDevice]]:
    """The hardware of a node as each source sees it: functions, objects below some of them, files of some nodes."""
    found: dict[str, list[FoundDevice]] = {"pci": [], "sysfs": [], "files": [], "simulated": []}
    for address in draw(st.lists(st.sampled_from(ADDRESSES), unique=True)):
        path = f"devices/pci0000:00/{address}"
        group = draw(st.sampled_from([None, "1", "2"]))
        driver = draw(st.sampled_from([None, "vfio-pci", "host"]))
        values = {"name": address, "pci.address": address}
        values |= {"iommuGroup": group} if group else {}
        values |= {"driver": driver, "pci.driver": driver} if driver else {}
        values |= draw(st.dictionaries(st.sampled_from(["numaNode", "attr.x"]), st.sampled_from(["0", "1", "a/b"])))
        tty = f"ttyX{address[6]}{address[-1]}"
        below = driver == "host" and draw(st.booleans())
        on_vfio = driver == "vfio-pci" and group
        own = [f"/dev/vfio/{group}", "/dev/vfio/vfio"] if on_vfio else [f"/dev/{tty}"] if below else []
        found["pci"].append(
            FoundDevice(
                "pci",
                address,
                path,
                values,
                nodes=tuple(own),
                shared_nodes=CONTAINER,
                unit="pci.address",
                stable_name=True,
            )
        )
        if below:
            serial = draw(st.sampled_from(["A", "B", "A::1"]))
            inner = {
                "name": tty,
                "path": f"/dev/{tty}",
                "usb.serial": serial,
                "usb.port": address,
                "index": address[-1],
            }
            place = f"{path}/usb1/1-1/{tty}"
            found["sysfs"].append(FoundDevice("sysfs", tty, place, values | inner, nodes=(f"/dev/{tty}",)))
            found["files"].append(file(tty, place, values | inner))
    for i in range(draw(st.integers(0, 4))):
        found["files"].append(file(f"f{i}", None, {"name": f"f{i}", "path": f"/dev/f{i}"}))
    return found


def file(name: str, place: str | None, values: dict[str, str]) -> FoundDevice:
    path = values["path"]
    return FoundDevice("files", name, place, values, nodes=(path,), label=path, unit="path")


def simulated(prefix: str) -> tuple[FoundDevice, ...]:
    return tuple(
        FoundDevice("simulated", f"{prefix}-{i}", None, {"name": f"{prefix}-{i}", "index": str(i)}, stable_name=True)
        for i in range(3)
    )


VALUES = st.sampled_from([["*"], ["0"], ["*0"], ["host", "1"]])


def matches(source: str) -> st.SearchStrategy[dict[str, Any]]:
    shared = ["name", *(["numaNode", "driver"] if source != "simulated" else [])]
    return st.fixed_dictionaries({"attribute": st.sampled_from(shared), "values": VALUES})


@st.composite
def entries(draw: st.DrawFn, number: int) -> dict[str, Any]:
    sources = draw(st.lists(st.sampled_from(sorted(SOURCES)), min_size=1, max_size=3))
    units = [
        "",
        "node",
        "name",
        *([] if "simulated" in sources else ["numaNode", "iommuGroup", "attr.x", "pci.address"]),
    ]
    units += ["usb.serial", "usb.port", "index"] if set(sources) <= {"sysfs", "files"} else []
    placeholder = draw(st.sampled_from(["", "", "-{name}"]))
    return {
        "name": f"example.com/r{number}{placeholder}",
        "devices": [{**SOURCES[s], "include": draw(st.lists(matches(s), max_size=1))} for s in sources],
        "exclude": draw(st.lists(matches("simulated"), max_size=1)),
        "unit": draw(st.sampled_from(units)),
        "maxDevices": draw(st.sampled_from([0, 0, 1, 2])),
        "ownership": draw(st.sampled_from(["Exclusive", "Exclusive", "None"])),
        "sharing": {"replicas": draw(st.sampled_from([1, 2, 6_000]))},
        "inject": {
            "mounts": draw(st.sampled_from([[], [{"hostPath": "/opt/{name}", "containerPath": "/opt/{name}"}]]))
        },
    }


@st.composite
def cases(draw: st.DrawFn) -> tuple[Document, Findings]:
    hardware = draw(nodes())
    document = documented(*[draw(entries(i)) for i in range(draw(st.integers(1, 4)))])
    hardware["pci"] = list(grouped(hardware["pci"], members=hardware["pci"]))
    by_entry = tuple(
        tuple(simulated(f"s{i}-{j}") if e.simulated else tuple(hardware[e.kind]) for j, e in enumerate(r.devices))
        for i, r in enumerate(document.resources)
    )
    return document, Findings(by_entry=by_entry)


def chosen(document: Document, findings: Findings, **more: Any) -> Selection:
    return select(document, findings, dev=DeviceNodes(exists=lambda _path: True), **more)


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_find_is_in_one_unit_of_its_entry_or_left_out_with_one_reason(case: tuple[Document, Findings]):
    document, findings = case
    selected = chosen(document, findings)
    for resource, found in zip(document.resources, findings.by_entry, strict=True):
        units = [u for u in selected.units if u.entry == resource.name]
        left_out = Counter(e.id for e in selected.excluded if e.entry == resource.name)
        for finds in found:
            for find in finds:
                key = find.hardware
                inside = sum(key in unit.hardware for unit in units)
                labels = {f.title for fs in found for f in fs if f.hardware == key}
                reasons = sum(left_out[one] for one in labels)
                assert inside <= 1
                assert inside or reasons
                assert reasons <= 1
                assert not (inside and reasons) or find.source == "pci"  # a free member that goes with its group


@given(cases())
@settings(max_examples=100, deadline=None)
def test_ids_with_their_replicas_are_unique_on_the_node_and_their_numbers_fit(case: tuple[Document, Findings]):
    selected = chosen(*case)
    ids = Counter(names.replica_id(u.id, n) for u in selected.units for n in range(u.replicas))
    assert not ids or ids.most_common(1)[0][1] == 1
    assert all(0 < len(i) <= names.MAX_ID for i in ids)
    per_name: Counter[str] = Counter()
    for unit in selected.units:
        per_name[unit.resource] += unit.replicas
        assert names.resource_name_problem(unit.resource) is None
    assert all(n <= names.MAX_IDS for n in per_name.values())
    of_entry: dict[str, set[str]] = {}
    for unit in selected.units:
        of_entry.setdefault(unit.entry, set()).add(unit.resource)
    assert all(len(rendered) <= names.MAX_NAMES_PER_ENTRY for rendered in of_entry.values())
    assert sum(map(len, of_entry.values())) == len(set().union(*of_entry.values()))


@given(cases())
@settings(max_examples=100, deadline=None)
def test_no_hardware_and_no_node_is_owned_twice(case: tuple[Document, Findings]):
    document, findings = case
    exclusive = {r.name for r in document.resources if r.ownership is Ownership.EXCLUSIVE}
    units = [u for u in chosen(document, findings).units if u.entry in exclusive]
    owned = Counter(path for u in units for path in u.hardware)
    assert not owned or owned.most_common(1)[0][1] == 1
    devices = Counter(n for u in units for n in u.nodes if n not in CONTAINER)
    assert not devices or devices.most_common(1)[0][1] == 1
    for unit in units:
        for other in units:
            if unit.entry != other.entry:
                assert not any(b.startswith(f"{a}/") for a in unit.hardware for b in other.hardware)


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_the_order_in_which_a_file_system_lists_devices_does_not_matter(
    case: tuple[Document, Findings], order: random.Random
):
    document, findings = case

    def shuffled(finds: tuple[FoundDevice, ...]) -> tuple[FoundDevice, ...]:
        return tuple(order.sample(finds, len(finds)))

    other = replace(findings, by_entry=tuple(tuple(shuffled(f) for f in found) for found in findings.by_entry))
    first, second = chosen(document, findings), chosen(document, other)
    assert first.units == second.units
    assert sorted((e.entry, e.id, e.reason) for e in first.excluded) == sorted(
        (e.entry, e.id, e.reason) for e in second.excluded
    )
    assert first.refused == second.refused


@given(cases(), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_held_devices_stay_when_others_appear(case: tuple[Document, Findings], order: random.Random):
    """A held device stays offered when more devices are found."""
    document, findings = case
    document = replace(
        document,
        resources=tuple(replace(r, unit="", sharing=replace(r.sharing, replicas=1)) for r in document.resources[:1]),
    )
    everything = findings.by_entry[:1]
    some = tuple(tuple(tuple(f for f in finds if order.random() < 0.5) for finds in found) for found in everything)
    before = chosen(document, replace(findings, by_entry=some))
    held = frozenset(u.id for u in before.units)
    after = chosen(document, replace(findings, by_entry=everything), held=held)
    assert "MaxDevices" not in {e.reason for e in after.excluded if e.id in held}


@given(cases())
@settings(max_examples=100, deadline=None)
def test_texts_of_grants_are_templates_of_the_position_alone(case: tuple[Document, Findings]):
    for unit in chosen(*case).units:
        texts = [t for m in unit.grants.mounts for t in (m.host_path, m.container_path)]
        texts += [t for n in unit.grants.nodes for t in (n.host_path, n.container_path, n.env)]
        assert all(set(parse_template(t).names) <= {"position"} for t in texts)
        assert all(t.startswith("/opt/") for m in unit.grants.mounts for t in (m.host_path, m.container_path))
