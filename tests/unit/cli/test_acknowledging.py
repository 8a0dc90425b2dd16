"""The annotation of an acknowledgement, and the agent's answer to it."""

import pytest
from device_agent.contract.reasons import DeviceHealth
from kubectl_devices.errors import CliError
from kubectl_devices.model.acknowledging import ANNOTATION, Item, annotation, answers, item, taken
from unit.cli.made import device, inventory

SINCE = "2026-03-01T10:15:00Z"
BROKEN = {"health": "Unhealthy", "since": SINCE}


def test_the_present_failure_is_meant_unless_a_time_is_given():
    broken = device("g1", health=DeviceHealth.UNHEALTHY, since=SINCE)
    assert item(broken, since="").text == f"g1={SINCE}"
    assert item(broken, since="2026-03-01T09:00:00Z").text == "g1=2026-03-01T09:00:00Z"


@pytest.mark.parametrize("facts", [{}, {"health": DeviceHealth.UNKNOWN}, {"health": DeviceHealth.UNHEALTHY}])
def test_a_device_without_a_failure_or_its_time_is_refused(facts: dict):
    with pytest.raises(CliError):
        item(device("g1", **facts), since="")


def test_earlier_items_stay_while_their_devices_are_broken():
    earlier = "gone=t0, g1=t1 ,g2=t2"
    there = inventory(annotations={ANNOTATION: earlier}, devices=[{"id": "g1", **BROKEN}, {"id": "g2", **BROKEN}])
    assert annotation(there, [Item("g1", SINCE)]) == f"g2=t2,g1={SINCE}"


def test_each_item_gets_its_own_part_of_the_answer():
    text = (
        f"g1={SINCE}: taken at 2026-03-01T10:20:11Z, Xid79 ended; Healthy when its checks are good; "
        "g2=t2: no failure of it began at that moment; failed now: g2=t3 (Xid79)"
    )
    first, second, third = Item("g1", SINCE), Item("g2", "t2"), Item("g3", "t")
    found = answers(inventory(acknowledgement=text), [first, second, third])
    assert taken(found[first])
    assert found[first].endswith("its checks are good")
    assert not taken(found[second])
    assert third not in found
