"""Health and links of an unknown source: its parts, faults and rules are values like those of any other source."""

from dataclasses import replace
from datetime import datetime

import pytest
from device_agent.allocate.topology import LINK
from device_agent.contract.document import Clears, DeviceEntry, Document, HealthRules, Resource, SysfsSource
from device_agent.contract.reasons import DeviceReason, Withheld
from device_agent.health.news import Answer, Check, Code, DriverLoad, Fault, Look, Ruling
from device_agent.nvml import xids
from device_agent.select.unit import Unit
from device_agent.table.device_table import DeviceTable
from unit.health.gpus import gpu, gpu_resource
from unit.table.samples import NAME, OTHER, selection, unit, wall

SOURCE = "sysfs"
RULES = HealthRules(failure_threshold=1, recovery_threshold=1)
LOAD = DriverLoad("first", 1)
BROKEN, QUIET = Code("FLT", "7"), Code("FLT", "8")


def rule(code: Code, rules: HealthRules) -> Ruling | None:
    clears = {BROKEN: Clears.RESET, QUIET: Clears.QUIET}.get(code)
    if clears is None:
        return None
    return Ruling(
        cause=f"Fault{code.number}", meaning="it burns", message=f"{code}: it burns; pour water", clears=clears
    )


def of_card(device: str, *, card: str = "card-1", **fields) -> Unit:
    """One of the devices that a card has."""
    return unit(device, source=SOURCE, parts=(card, f"{card}/{device}"), **fields)


def entry(name: str = NAME) -> Resource:
    return Resource(name=name, devices=(DeviceEntry(sysfs=SysfsSource(subsystem="made_up")),), health=RULES)


class Cards:
    """A table of two devices on one card and of one on another, beside a GPU of another driver."""

    def __init__(self) -> None:
        self.now = 0.0
        resources = (entry(), gpu_resource(OTHER, health=RULES))
        self.table = DeviceTable(Document(resources), fault_rules={SOURCE: rule, "nvml": xids.rule})
        units = (of_card("a"), of_card("b"), of_card("c", card="card-2"), gpu(0, name=OTHER))
        self.table.apply_selection(selection(*units), now=0.0, wall=wall(0))
        self.look()
        self.tell(Look({"GPU-0": Check(Answer.GOOD)}, source="nvml"))

    def tell(self, news: Look | Fault) -> frozenset[str]:
        self.now += 10
        return self.table.apply_health(news, now=self.now, wall=self.wall)

    def look(self, *, load: DriverLoad = LOAD, **fields: str) -> frozenset[str]:
        checks = {} if fields else {f"card-{n}": Check(Answer.GOOD) for n in (1, 2)}
        return self.tell(Look(checks, source=SOURCE, load=load, **fields))

    def fault(self, part: str, code: Code) -> frozenset[str]:
        return self.tell(Fault(part=part, code=code, source=SOURCE, load=LOAD))

    @property
    def wall(self) -> datetime:
        return wall(self.now)

    def seen(self) -> dict[str, bool]:
        return {a.id: a.healthy for name in (NAME, OTHER) for a in self.table.listed(name)}

    def reasons(self) -> dict[str, str]:
        return {d.unit.id: d.reason for state in self.table.snapshot().resources for d in state.devices if d.reason}


def test_a_fault_of_a_part_takes_both_devices_on_it_away_and_its_recovery_brings_both_back():
    cards = Cards()
    assert cards.fault("card-1", BROKEN) == {NAME}
    assert cards.seen() == {"a": False, "b": False, "c": True, "GPU-0": True}
    assert cards.reasons() == {"a": "Fault7", "b": "Fault7"}
    cards.look()
    assert cards.reasons() == {"a": "Fault7", "b": "Fault7"}, "it waits for a reset"
    assert cards.look(load=DriverLoad("second", 2)) == {NAME}
    assert set(cards.seen().values()) == {True}


def test_a_fault_of_a_part_of_a_card_concerns_the_one_device_on_it():
    cards = Cards()
    cards.fault("card-1/b", QUIET)
    assert cards.reasons() == {"b": "Fault8"}
    cards.look()
    assert cards.reasons() == {}


def test_several_faults_are_named_by_the_sources_codes():
    cards = Cards()
    cards.fault("card-1", BROKEN)
    cards.fault("card-1/a", QUIET)
    [device] = [d for state in cards.table.snapshot().resources for d in state.devices if d.unit.id == "a"]
    assert device.message.startswith("FLT 7: it burns; pour water; also FLT 8 (it burns) since ")


@pytest.mark.parametrize("number", ["9", "79"])
def test_a_fault_that_no_rule_counts_changes_nothing(number):
    cards = Cards()
    revision = cards.table.health_revision
    cards.fault("card-1", Code("FLT", number))
    assert (cards.reasons(), cards.table.health_revision) == ({}, revision)


def test_a_driver_that_gives_no_answer_says_nothing_of_another_drivers_devices():
    cards = Cards()
    cards.look(unanswered="it hangs", cause="DriverHangs")
    assert cards.reasons() == dict.fromkeys("abc", "DriverHangs")
    cards.tell(Look({}, source="nvml", unanswered="NVML hangs"))
    assert cards.reasons() == {**dict.fromkeys("abc", "DriverHangs"), "GPU-0": "NoAnswer"}
    cards.look()
    assert cards.reasons() == {"GPU-0": "NoAnswer"}


def test_an_admin_ends_a_failure_by_the_parts_name():
    cards = Cards()
    cards.fault("card-1", BROKEN)
    since = cards.wall.strftime("%Y-%m-%dT%H:%M:%SZ")
    _, [reply] = cards.table.acknowledge(f"card-1={since}", now=cards.now, wall=cards.wall)
    assert reply.parts == ("card-1",)
    cards.look()
    assert cards.reasons() == {}


def test_faults_before_the_first_configuration_count_for_their_own_source():
    fresh = Cards()
    fresh.table = DeviceTable(Document(()), fault_rules={SOURCE: rule})
    fresh.fault("card-2", BROKEN)
    fresh.table.configure(Document((entry(),)))
    fresh.table.apply_selection(selection(of_card("a"), of_card("c", card="card-2")), now=fresh.now, wall=fresh.wall)
    assert fresh.reasons() == {"c": "Fault7"}


@pytest.mark.parametrize(
    ("libraries", "reason"), [(None, Withheld.DRAINING), ((), DeviceReason.MISSING)], ids=["a library", "no library"]
)
def test_fault_rules_alone_do_not_make_a_source_a_driver_library(libraries, reason):
    """The scan sees whether the hardware of other sources is still there, so a vanished device is Missing."""
    table = DeviceTable(Document((entry(),)), fault_rules={SOURCE: rule}, libraries=libraries)
    table.apply_selection(selection(of_card("a")), now=0.0, wall=wall(0))
    edited = DeviceEntry(sysfs=SysfsSource(subsystem="another"))
    table.configure(Document((replace(entry(), devices=(edited,)),)))
    table.apply_selection(selection(), now=1.0, wall=wall(1))
    [device] = table.snapshot().resources[0].devices
    assert reason in (device.reason, device.withheld)


def test_links_of_any_source_score():
    cards = Cards()
    cards.table.apply_links({("card-1", "card-2"): 3}, source=SOURCE)
    affinity = cards.table.affinity(NAME)
    assert affinity is not None
    assert affinity.between("a", "c") == affinity.between("b", "c")
    assert affinity.between("a", "c") // LINK == 3
    assert affinity.between("a", "b") < LINK, "of one card"
