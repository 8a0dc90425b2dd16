"""What happened to devices: which changes are shown, in which order, and at whose time."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kubectl_devices.commands.history import as_json
from kubectl_devices.model.history import Wanted, happenings, history_table, is_known, remarks
from unit.cli.made import inventory

NOW = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC)


def change(at: str, id: str, before: str, to: str, **more: Any) -> dict[str, Any]:  # noqa: A002
    known = {"from": before} if before else {}
    return {"time": f"2026-03-04T{at}Z", "resource": "example.com/lab", "id": id, "to": to, **known, **more}


FIRST = inventory(
    "n1",
    devices=[{"id": "0", "attributes": {"uuid": "GPU-1"}, "nodes": ["/dev/nvidia0"]}],
    history=[
        change("08:00:00", "0", "", "Unhealthy", reason="Missing"),
        change("10:00:00", "0", "Unhealthy", "Healthy"),
        change("11:00:00", "9", "Healthy", "Gone"),
    ],
    historyOmitted=2,
)
SECOND = inventory(
    "n2",
    "two",
    devices=[{"id": "0", "attributes": {"uuid": "GPU-2"}}],
    history=[change("09:00:00", "0", "Healthy", "Withheld", reason="Cordoned", resource="other.com/x")],
)
ALL = (SECOND, FIRST)


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("wanted", "hours"),
    [
        (Wanted(), "8 9 10 11"),
        (Wanted(device="0"), "8 9 10"),
        (Wanted(device="GPU-1"), "8 10"),
        (Wanted(device="/dev/nvidia0"), "8 10"),
        (Wanted(device="9"), "11"),
        (Wanted(node="n2"), "9"),
        (Wanted(node="n*", config="lab"), "8 10 11"),
        (Wanted(resource="other.com/*"), "9"),
        (Wanted(since=datetime(2026, 3, 4, 10, tzinfo=UTC)), "10 11"),
        (Wanted(device="x"), ""),
    ],
)
def test_filters_are_joined_by_and_and_the_newest_is_last(wanted: Wanted, hours: str):
    assert " ".join(str(h.time.hour) for h in happenings(ALL, wanted)) == hours


def test_changes_of_one_second_keep_the_order_of_the_agent():
    same = [
        change("08:00:00", "0", a, b) for a, b in (("Healthy", "Unknown"), ("Unknown", "Gone"), ("Gone", "Healthy"))
    ]
    assert [h.facts.to for h in happenings([inventory(history=same)], Wanted())] == ["Unknown", "Gone", "Healthy"]


@pytest.mark.usefixtures("in_tokyo")
def test_times_are_local_and_wide_has_age_and_configuration():
    found = happenings([FIRST], Wanted(device="0"))
    assert history_table(found, wide=False, now=NOW).rows == (
        ("2026-03-04T17:00:00+09:00", "n1", "example.com/lab", "0", "", "Unhealthy", "Missing"),
        ("2026-03-04T19:00:00+09:00", "n1", "example.com/lab", "0", "Unhealthy", "Healthy", ""),
    )
    wide = history_table(found, wide=True, now=NOW)
    assert wide.headings[-2:] == ("AGE", "CONFIG")
    assert [row[-2:] for row in wide.rows] == [("4h", "lab"), ("2h", "lab")]


def test_json_has_the_fields_of_the_api():
    (last,) = happenings([FIRST], Wanted(device="9"))
    assert as_json(last) == {"node": "n1", "config": "lab", **change("11:00:00", "9", "Healthy", "Gone")}


def test_a_device_that_is_gone_is_known_and_one_that_never_was_is_not():
    assert is_known(ALL, "9")
    assert is_known(ALL, "GPU-2")
    assert not is_known(ALL, "x")
    assert not is_known([inventory()], "9")


def test_what_was_left_out_is_told():
    (remark,) = remarks(ALL)
    assert "lab.n1" in remark
    assert "2" in remark
