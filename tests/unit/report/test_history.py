"""Transitions between snapshots: the log's lines, the ring of the last days, and what survives a restart."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import pytest
from device_agent.contract.inventory import HistoryState, Identity, InventoryTransition
from device_agent.contract.reasons import Withheld
from device_agent.report import history
from device_agent.report.history import HISTORY, History, bounded, joined
from device_agent.report.transitions import Comparison, log
from device_agent.select.unit import Grants, Unit
from device_agent.table.snapshot import DeviceState, Health, Hold, ResourceState, TableSnapshot
from hypothesis import given
from hypothesis import strategies as st

NAME = "e.com/a"
START = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = START - timedelta(days=1)
PACE: Final = 60.0


def state(
    number: int, *, reason: str = "", hold: Withheld | None = None, silent: bool = False, since: datetime = LONG_AGO
) -> DeviceState:
    unit = Unit(
        entry=NAME, resource=NAME, id=str(number), value=str(number), identity=Identity.STABLE,
        source="pci", attributes={}, nodes=(), grants=Grants(), hardware=(),
    )  # fmt: skip
    return DeviceState(
        unit=unit,
        health=Health.UNHEALTHY if reason else Health.HEALTHY,
        reason=reason or "NoAnswer" * silent,
        message="m" * bool(reason),
        since=since,
        ids=(unit.id,),
        holders={},
        unanswered="it hangs" * silent,
        hold=Hold(hold, "told") if hold else None,
    )


def shot(*devices: DeviceState) -> TableSnapshot:
    resource = ResourceState(name=NAME, entry=NAME, devices=devices, capacity=0, allocated=0, message="")
    return TableSnapshot(resources=(resource,), excluded=(), refused={}, holders_known=True)


class Process:
    """The agent's part that makes the history; `disk`: the file of the node store."""

    def __init__(self) -> None:
        self.disk = HISTORY.dump((), boot_id="")
        self.now = START
        self.start()

    def start(self) -> None:
        self._comparison = Comparison()
        self.history = History(pace=PACE, clock=self._clock)
        self.history.restore(HISTORY.parse(self.disk, boot_id="another boot"), late=False, now=0.0, wall=self.now)

    def _clock(self) -> float:
        return self.now.timestamp()

    def sees(self, *devices: DeviceState, awaiting: bool = False, seconds: float = 1.0) -> list[tuple[str, ...]]:
        """The new rows: (id, from, to, reason)."""
        self.now += timedelta(seconds=seconds)
        before = self.history.items()
        taken = self._comparison.take(shot(*devices), kept=self.history.last, now=self.now, awaiting=awaiting)
        self.history.add(taken, now=self.now)
        self.disk = HISTORY.dump(self.history.items(), boot_id="")
        return rows(item for item in self.history.items() if item not in before)


def rows(items: Iterable[InventoryTransition]) -> list[tuple[str, ...]]:
    return [(i.id, i.from_ or "-", i.to, i.reason) for i in items]


# The log


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    out = [(r.levelname, r.message, getattr(r, "device", str(getattr(r, "devices", "")))) for r in caplog.records]
    caplog.clear()
    return out


def test_each_change_of_a_device_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    comparison = Comparison()

    def lines(*devices: DeviceState) -> list[tuple[str, str, str]]:
        log(comparison.take(shot(*devices), kept={}, now=START))
        return said(caplog)

    assert lines(state(1), state(2, reason="Missing")) == [
        ("INFO", "device found", "1"),
        ("WARNING", "device unhealthy", "2"),
    ]
    assert lines(state(1), state(2, reason="Missing")) == []
    assert lines(state(1, hold=Withheld.CORDONED), state(2)) == [
        ("INFO", "device withheld", "1"),
        ("INFO", "device healthy again", "2"),
    ]
    assert lines(state(1), state(2, silent=True)) == [
        ("INFO", "device offered again", "1"),
        ("WARNING", "device gives no answer", "2"),
    ]
    assert lines(state(2)) == [("INFO", "device answers again", "2"), ("INFO", "device gone", "1")]


def test_a_thousand_changes_at_once_give_a_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log(Comparison().take(shot(*(state(n) for n in range(1000))), kept={}, now=START))
    lines = said(caplog)
    assert len(lines) == 21
    assert lines[-1] == ("INFO", "more devices changed", "980")


# What becomes history


def test_healthy_devices_that_are_found_at_the_start_are_no_history_and_broken_ones_are() -> None:
    broken = state(2, reason="GpuLost")
    process = Process()
    assert process.sees(state(1), broken, state(3, hold=Withheld.CORDONED)) == [
        ("2", "-", "Unhealthy", "GpuLost"),
        ("3", "-", "Withheld", "Cordoned"),
    ]
    assert {item.time for item in process.history.items()} == {"2025-12-31T00:00:00Z"}


def test_each_state_is_told_with_its_reason() -> None:
    process = Process()
    assert process.sees(state(1)) == []
    assert process.sees(state(1, reason="Missing")) == [("1", "Healthy", "Unhealthy", "Missing")]
    assert process.sees(state(1, reason="Missing", hold=Withheld.CORDONED)) == []
    assert process.sees(state(1, hold=Withheld.CORDONED)) == [("1", "Unhealthy", "Withheld", "Cordoned")]
    assert process.sees(state(1, silent=True)) == [("1", "Withheld", "Unknown", "NoAnswer")]
    assert process.sees(state(1, reason="Missing")) == [("1", "Unknown", "Unhealthy", "Missing")]
    assert process.sees(state(1, reason="Xid79")) == [("1", "Unhealthy", "Unhealthy", "Xid79")]
    assert process.sees() == [("1", "Unhealthy", "Gone", "Xid79")]
    back = (state(1, since=START), state(2, since=START))
    assert process.sees(*back) == [("2", "-", "Healthy", ""), ("1", "Gone", "Healthy", "")]
    assert [item.time for item in process.history.items()[-3:]] == [
        "2026-01-01T00:00:08Z",
        "2026-01-01T00:00:00Z",  # the table has known the device since then
        "2026-01-01T00:00:08Z",  # it cannot be back before it was gone
    ]


def test_a_change_that_was_seen_has_the_time_of_the_change() -> None:
    process = Process()
    process.sees(state(1))
    process.sees(state(1, reason="Missing"), seconds=600)
    assert process.history.items()[-1].time == "2026-01-01T00:10:01Z"


def test_a_restart_invents_nothing_and_finds_what_changed_meanwhile() -> None:
    process = Process()
    same = (state(1), state(2, reason="Missing"), state(3, hold=Withheld.CORDONED))
    process.sees(state(1), state(2), state(3), state(4))
    process.sees(*same, state(4, reason="Missing"))
    process.start()
    assert process.sees(*same, state(4)) == [("4", "Unhealthy", "Healthy", "")]
    process.start()
    assert process.sees(state(1), state(3)) == [
        ("3", "Withheld", "Healthy", ""),
        ("2", "Unhealthy", "Gone", "Missing"),
        ("4", "Healthy", "Gone", ""),
    ]
    process.start()
    assert process.sees(state(1), state(3)) == []


def test_a_driver_that_is_slow_at_the_start_changes_nothing() -> None:
    process = Process()
    process.sees(state(1, reason="Missing"))
    process.start()
    assert process.sees(awaiting=True) == []
    assert process.sees(state(1, reason="Missing"), state(2), awaiting=True) == []
    assert process.sees(state(1, reason="Missing"), state(2)) == []


def test_what_is_read_late_comes_before_what_was_found_without_it() -> None:
    process = Process()
    process.sees(state(1), state(2))
    process.sees(state(1, reason="Missing"), state(2))
    kept = process.history.items()
    process.disk = HISTORY.dump((), boot_id="")
    process.start()
    process.sees(state(1, reason="Missing"), state(2))
    process.sees(state(1, reason="Missing"), state(2, reason="Missing"))
    process.history.restore(kept, late=True, now=0.0, wall=process.now)
    process.history.restore(process.history.items(), late=True, now=0.0, wall=process.now)
    assert rows(process.history.items()) == [
        ("1", "Healthy", "Unhealthy", "Missing"),
        ("2", "Healthy", "Unhealthy", "Missing"),
    ]


# The ring


def item(number: int, *, seconds: float = 0, of: int = 1, plan: bool = False) -> InventoryTransition:
    time = (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    to = HistoryState.WITHHELD if plan else HistoryState.UNHEALTHY
    return InventoryTransition(
        time=time, resource=NAME, id=str(of), from_=HistoryState.HEALTHY, to=to, reason=f"Xid{number}"
    )


def test_pods_that_come_and_go_do_not_push_out_failures() -> None:
    failures = [item(n) for n in range(5)]
    planned = [item(n, plan=True) for n in range(100)]
    assert bounded([*failures, *planned], now=START) == (*failures, *planned[-history.MAX_PLANNED_OF_DEVICE :])
    everything = [*failures, *(item(n, of=n, plan=True) for n in range(10_000))]
    assert [i for i in bounded(everything, now=START) if i.to is HistoryState.UNHEALTHY] == failures


def test_old_items_go() -> None:
    items = [item(1, seconds=-history.AGE.total_seconds() - 1), item(2, seconds=-history.AGE.total_seconds())]
    assert bounded(items, now=START) == (items[1],)


def test_an_item_that_the_api_server_would_refuse_is_not_taken_from_the_disk() -> None:
    bad = [
        InventoryTransition(time=time, resource=resource, id=name, to=HistoryState.GONE, reason=reason)
        for time, resource, name, reason in (
            ("yesterday", NAME, "1", ""),
            ("2026-01-01", NAME, "1", ""),
            ("0001-01-01T00:00:00+14:00", NAME, "1", ""),
            ("2026-01-01T00:00:00Z", NAME * 100, "1", ""),
            ("2026-01-01T00:00:00Z", NAME, "1" * 64, ""),
            ("2026-01-01T00:00:00Z", NAME, "", ""),
            ("2026-01-01T00:00:00Z", NAME, "1", "R" * 129),
        )
    ]
    process = Process()
    process.disk = HISTORY.dump((*bad, item(1)), boot_id="")
    process.start()
    assert process.history.items() == (item(1),)


def test_a_device_that_flaps_is_written_to_the_disk_once_a_minute_and_at_the_end() -> None:
    process = Process()
    written = {process.history.revision}
    for second in range(300):
        process.sees(state(1, reason="Missing" * (second % 2)))
        written.add(process.history.revision)
    assert len(written) == 1 + 300 / PACE
    process.history.release()
    assert process.history.revision not in written


standings = st.builds(
    state,
    st.integers(0, 3),
    reason=st.sampled_from(["", "Missing", "Xid79"]),
    hold=st.sampled_from([None, *Withheld]),
    silent=st.booleans(),
)
looks = st.lists(standings, unique_by=lambda d: d.unit.id, max_size=4)
steps = st.lists(st.tuples(looks, st.floats(1, 90_000), st.booleans()), max_size=60)


@given(steps)
def test_the_ring_is_bounded_ordered_and_a_chain_over_any_number_of_restarts(
    found: list[tuple[list[DeviceState], float, bool]],
) -> None:
    process = Process()
    for devices, seconds, restart in found:
        process.sees(*devices, seconds=seconds)
        if restart:
            process.start()
            assert process.sees(*devices) == []
        check(process.history.recent(process.now), now=process.now, present={d.unit.id for d in devices})


def check(items: tuple[InventoryTransition, ...], *, now: datetime, present: set[str]) -> None:
    assert all(datetime.fromisoformat(i.time) > now - history.AGE - timedelta(seconds=1) for i in items)
    for device_id in {i.id for i in items}:
        of_one = [i for i in items if i.id == device_id]
        plan = [i for i in of_one if {i.from_, i.to} <= {None, HistoryState.HEALTHY, HistoryState.WITHHELD}]
        assert len(of_one) <= history.MAX_OF_DEVICE
        assert len(plan) <= history.MAX_PLANNED_OF_DEVICE
        assert (of_one[-1].to is HistoryState.GONE) == (device_id not in present)
        for earlier, later in pairwise(of_one):
            assert earlier.time <= later.time
            assert earlier.to == later.from_ or len(plan) == history.MAX_PLANNED_OF_DEVICE
            assert (earlier.to, earlier.reason) != (later.to, later.reason) or len(plan) > 1


def test_what_two_processes_found_is_there_once() -> None:
    assert joined([item(1), item(2)], [item(2), item(3)]) == (item(1), item(2), item(3))
