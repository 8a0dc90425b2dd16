"""The budget of Events: each kind of transition has its own, and nothing is dropped silently."""

import logging
from typing import Any, cast

import pytest
from device_operator.cluster.client import ApiError, Client
from device_operator.cluster.events import EventWriter
from device_operator.runtime.metrics import Telemetry
from device_operator.spec.model import ConfigRef
from device_operator.status.notices import Notice, health_transitions
from prometheus_client import generate_latest
from unit.operator_core.build import device, inventory

LAB = ConfigRef("lab", "uid-lab")


class Api:
    """Takes what is created; `refuses` answers instead."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.refuses: ApiError | None = None

    async def create(self, _: object, body: dict[str, Any]) -> dict[str, Any]:
        if self.refuses:
            raise self.refuses
        self.made.append(body)
        return body


def writer(api: Api, clock: list[float], telemetry: Telemetry) -> EventWriter:
    return EventWriter(
        cast("Client", api), identity="test", clock=lambda: clock[0], dropped=telemetry.event_dropped, burst=3
    )


def fault(number: int, *, kind: str = "DeviceUnhealthy/Test") -> Notice:
    return Notice("Warning", "DeviceUnhealthy", f"text of {number}", f"{kind}/{number}", kind)


def dropped(telemetry: Telemetry, reason: str = "DeviceUnhealthy") -> float:
    return telemetry.registry.get_sample_value("device_operator_events_dropped_total", {"reason": reason}) or 0.0


async def test_each_kind_has_its_own_budget_and_what_is_dropped_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api, clock, telemetry = Api(), [0.0], Telemetry()
    events = writer(api, clock, telemetry)
    with caplog.at_level(logging.WARNING):
        await events.write(LAB, [fault(i) for i in range(5)])
    assert [e["message"] for e in api.made] == ["text of 0", "text of 1", "text of 2"]
    assert [r.text for r in caplog.records] == ["text of 3", "text of 4"]  # type: ignore[attr-defined]
    assert dropped(telemetry) == 2.0
    assert "device_operator_events_dropped_total" in generate_latest(telemetry.registry).decode()
    await events.write(LAB, [fault(0, kind="Degraded/True")])
    assert len(api.made) == 4
    clock[0] = 10.0
    await events.write(LAB, [fault(4)])
    assert api.made[-1]["message"] == "text of 4"


async def test_a_refused_event_is_logged_with_its_text_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    api, telemetry = Api(), Telemetry()
    api.refuses = ApiError(code=403, reason="Forbidden", message="no", request="create events")
    with caplog.at_level(logging.WARNING):
        await writer(api, [0.0], telemetry).write(LAB, [fault(1)])
    assert [r.text for r in caplog.records] == ["text of 1"]  # type: ignore[attr-defined]
    assert dropped(telemetry) == 1.0


async def test_a_device_that_breaks_in_a_storm_of_edits_is_told() -> None:
    """Thirty devices are broken and mended by edits, again and again; then one breaks."""
    api, telemetry = Api(), Telemetry()
    events = writer(api, [0.0], telemetry)

    def seen(health: str, since: int, *, also: str = "Healthy") -> Any:
        fields = {"since": str(since), "reason": "" if health == "Healthy" else "SimulatedFault"}
        devices = [device(f"d{i}", health=health, **fields) for i in range(30)]
        reason = {"reason": "" if also == "Healthy" else "SimulatedFault", "since": str(since)}
        return inventory(devices=[*devices, device("x", health=also, **reason)])

    before = seen("Healthy", 0)
    for edit in range(1, 9):
        now = seen("Unhealthy" if edit % 2 else "Healthy", edit)
        await events.write(LAB, health_transitions([before], [now]))
        before = now
    await events.write(LAB, health_transitions([before], [seen("Healthy", 9, also="Unhealthy")]))
    assert " x on node " in api.made[-1]["message"]
