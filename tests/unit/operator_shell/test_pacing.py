"""When a status is written: conditions at once, the rest gathered, holders last."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from device_agent.contract.status import read_config_status
from device_operator.status.pacing import LastWrite, Pace, wait

PACE = Pace(seconds=5, holders_seconds=30, refresh=270, bytes_per_second=16384)
BASE: dict[str, Any] = {
    "lastUpdateTime": "2026-06-01T12:00:00Z",
    "observedGeneration": 1,
    "summary": {"nodes": "2/2", "devices": "4/4", "capacity": 4, "allocated": 1, "unhealthy": 0},
    "conditions": [
        {
            "lastTransitionTime": "t",
            "type": "Ready",
            "status": "True",
            "reason": "Served",
            "message": "2 of 2",
            "observedGeneration": 1,
        },
        {
            "lastTransitionTime": "t",
            "type": "Progressing",
            "status": "True",
            "reason": "Rolling",
            "message": "1 of 2",
            "observedGeneration": 1,
        },
    ],
    "resources": [{"name": "example.com/a", "devices": 4, "allocated": 1}],
    "nodes": [
        {
            "name": "n",
            "state": "Serving",
            "devices": [{"id": "a", "allocatedTo": [{"pod": "p"}]}],
            "resources": [{"allocated": 1}],
        }
    ],
}


def waits(old: dict[str, Any], new: dict[str, Any], *, last: LastWrite | None, now: float) -> float:
    before, after = read_config_status(old), read_config_status(new)
    assert before.conditions
    assert after.conditions
    return wait(before, after, last=last, now=now, pace=PACE)


def _ready_false(status: Any) -> None:
    status["conditions"][0]["status"] = "False"


def _reason(status: Any) -> None:
    status["conditions"][1]["reason"] = "Waiting"


def _generation(status: Any) -> None:
    status["observedGeneration"] = 2


def _message(status: Any) -> None:
    status["conditions"][1]["message"] = "2 of 2"


def _count(status: Any) -> None:
    status["summary"]["nodes"] = "1/2"


def _holders(status: Any) -> None:
    status["summary"]["allocated"] = status["resources"][0]["allocated"] = 2
    status["nodes"][0]["devices"][0]["allocatedTo"] = [{"pod": "q"}]
    status["nodes"][0]["resources"][0]["allocated"] = 2


def _holders_and_count(status: Any) -> None:
    _holders(status)
    _count(status)


@pytest.mark.parametrize(
    ("edit", "size", "expected"),
    [
        (lambda _: None, 100, 270),
        (_ready_false, 10**9, 0),
        (_reason, 10**9, 0),
        (_generation, 10**9, 0),
        (_message, 100, 4),
        (_count, 100, 4),
        (_holders, 100, 29),
        (_holders_and_count, 100, 4),
        (_count, 384 * 1024, 23),
        (_holders, 384 * 1024, 29),
    ],
)
def test_seconds_until_a_change_is_written(edit: Callable[[Any], None], size: int, expected: float) -> None:
    new = copy.deepcopy(BASE)
    edit(new)
    assert waits(BASE, new, last=LastWrite(at=100, size=size), now=101) == expected


def test_the_first_write_of_a_process_does_not_wait() -> None:
    assert waits(BASE, {**BASE, "pools": [{"name": "p"}]}, last=None, now=0) == 0


def test_a_change_that_has_waited_long_enough_is_due() -> None:
    new = copy.deepcopy(BASE)
    _holders(new)
    assert waits(BASE, new, last=LastWrite(at=0, size=10), now=31) == 0


@pytest.mark.parametrize(("written", "expected"), [("12:01:00Z", 210), ("12:05:00Z", 0), ("10:00:00Z", 0)])
def test_an_unchanged_status_is_written_again_before_it_is_five_minutes_old(written: str, expected: float) -> None:
    new = {**BASE, "lastUpdateTime": f"2026-06-01T{written}"}
    assert waits(BASE, new, last=LastWrite(at=100, size=384 * 1024), now=101) == expected
    assert PACE.refresh == Pace().refresh < 300


def test_what_changes_all_the_time_does_not_put_off_the_write_of_an_old_status() -> None:
    new = copy.deepcopy({**BASE, "lastUpdateTime": "2026-06-01T12:05:00Z"})
    _holders(new)
    assert waits(BASE, new, last=LastWrite(at=100, size=384 * 1024), now=101) == 0


def test_a_status_without_a_time_is_written() -> None:
    old = {key: value for key, value in BASE.items() if key != "lastUpdateTime"}
    assert waits(old, BASE, last=None, now=101) == 0
