"""What the agent's metrics say of devices: reasons are few words, whatever a driver or an admin may write."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from device_agent.allocate.answer import respond
from device_agent.contract.document import Resource, Sharing
from device_agent.contract.inventory import Identity
from device_agent.contract.reasons import DeviceReason, RefusalReason, Withheld, as_label
from device_agent.report import transitions
from device_agent.report.publication import counts
from device_agent.report.transitions import Comparison
from device_agent.runtime.errors import UnavailableDevice, UnknownDevice, WrongNumber
from device_agent.runtime.metrics import Metrics
from device_agent.select.unit import Grants, Unit
from device_agent.table.snapshot import DeviceState, Health, Hold, ResourceState, TableSnapshot

CORDONED = Hold(Withheld.CORDONED, "by an admin")


def unit(number: int) -> Unit:
    return Unit(
        entry="e.com/a", resource="e.com/a", id=str(number), value=str(number), identity=Identity.STABLE,
        source="pci", attributes={}, nodes=(), grants=Grants(), hardware=(),
    )  # fmt: skip


def device(number: int, reason: str = "", *, unanswered: str = "", hold: Hold | None = None) -> DeviceState:
    return DeviceState(
        unit=unit(number), health=Health.UNHEALTHY if reason and not unanswered else Health.HEALTHY, reason=reason,
        message="", since=datetime(2026, 1, 1, tzinfo=UTC), ids=(str(number),), holders={}, unanswered=unanswered,
        hold=hold,
    )  # fmt: skip


def shot(*devices: DeviceState) -> TableSnapshot:
    resource = ResourceState(
        name="e.com/a", entry="e.com/a", devices=devices, capacity=0, allocated=0, message=""
    )  # fmt: skip
    return TableSnapshot(resources=(resource,), excluded=(), refused={}, holders_known=True)


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        *((word, word) for word in (*DeviceReason, *Withheld, *RefusalReason)),
        ("Xid79", "Xid79"),
        ("Xid1234", "Other"),
        ("Xid", "Other"),
        ("example.com/made-up", "Other"),
        ("", "Other"),
    ],
)
def test_a_reason_that_is_not_listed_is_other(reason: str, label: str) -> None:
    assert as_label(reason) == label


def test_the_reason_of_each_refusal_is_a_label() -> None:
    with pytest.raises(WrongNumber) as refused:
        respond(
            Resource(name="e.com/a", devices=(), sharing=Sharing(max_per_container=1)), [("1", unit(1)), ("2", unit(2))]
        )
    others = (UnknownDevice("r", "i"), UnavailableDevice("r", "i", reason="HeldAs", message=""))
    assert [as_label(r.reason) for r in (refused.value, *others)] == ["WrongNumber", "UnknownId", "HeldAs"]


def test_devices_that_are_not_healthy_count_by_reason_unless_they_are_withheld() -> None:
    devices = (
        device(1),
        device(2, "Xid79"),
        device(3, "Xid79"),
        device(4, "Missing", hold=CORDONED),
        device(5, "NoAnswer", unanswered="no answer"),
        replace(device(6, "Missing"), ids=()),
    )
    [count] = counts(shot(*devices))
    assert count.not_healthy == {("Unhealthy", "Xid79"): 2, ("Unknown", "NoAnswer"): 1}
    assert count.withheld == {"Cordoned": 1}


def test_each_change_of_a_device_is_counted_once_by_its_new_state() -> None:
    metrics, comparison = Metrics(version="1"), Comparison()
    for states in (
        (device(1), device(2, "Missing")),  # the first look: only what is wrong counts
        (device(1), device(2, "Missing")),
        (device(1, hold=CORDONED), device(2)),
        (device(1), device(2, "its own word")),
        (device(1, "NoAnswer", unanswered="no answer"),),
    ):
        now = datetime(2026, 1, 2, tzinfo=UTC)
        transitions.count(comparison.take(shot(*states), kept={}, now=now), metrics)
    found = [line for line in metrics.registry.text().splitlines() if line.startswith("device_agent_device_trans")]
    total = 'device_agent_device_transitions_total{reason="%s",resource="e.com/a",to="%s"} %s'
    assert sorted(found) == sorted(
        total % row
        for row in (
            ("Missing", "Unhealthy", 1.0),
            ("Cordoned", "Withheld", 1.0),
            ("OK", "Healthy", 2.0),
            ("Other", "Unhealthy", 1.0),
            ("NoAnswer", "Unknown", 1.0),
            ("Other", "Gone", 1.0),
        )
    )
