"""Metrics and probes."""

from aiohttp import ClientSession
from device_agent.contract.inventory import InventoryDevice, InventoryResource, InventoryStatus
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.status import (
    ConditionStatus,
    ConfigCondition,
    ConfigStatus,
    PoolNodes,
    PoolStatus,
    StatusSummary,
)
from device_operator.runtime.figures import FailedNode, Seen
from device_operator.runtime.metrics import Telemetry
from device_operator.runtime.probes import Liveness, serve
from prometheus_client import generate_latest


def lines(seen: Telemetry) -> set[str]:
    """The series of objects, without device_operator_."""
    text = generate_latest(seen.registry).decode()
    return {line.removeprefix("device_operator_") for line in text.splitlines() if "{config=" in line}


def test_devices_are_counted_by_pool_resource_and_health_until_the_object_is_gone() -> None:
    telemetry = Telemetry()
    resource = InventoryResource(
        name="r", devices=4, healthy=2, unhealthy=1, unknown=1, withheld=2, capacity=8, allocated=3
    )
    inventory = InventoryStatus(pool_name="p", resources=(resource,))
    ready = ConfigCondition(
        type="Ready", status=ConditionStatus.UNKNOWN, last_transition_time="t", reason="NoReadyNodes", message=""
    )
    pool = PoolStatus(name="p", nodes=PoolNodes(matched=3, ready=2))
    status = ConfigStatus(conditions=(ready,), pools=(pool,))
    telemetry.report("c", Seen(status=status, inventories={"a": inventory, "b": inventory}))
    assert lines(telemetry) >= {
        'devices{config="c",health="Healthy",pool="p",resource="r"} 4.0',
        'devices{config="c",health="Unhealthy",pool="p",resource="r"} 2.0',
        'devices{config="c",health="Unknown",pool="p",resource="r"} 2.0',
        'devices_withheld{config="c",pool="p",resource="r"} 4.0',
        'capacity{config="c",pool="p",resource="r"} 16.0',
        'allocated{config="c",pool="p",resource="r"} 6.0',
        'nodes{config="c",pool="p",state="matched"} 3.0',
        'nodes{config="c",pool="p",state="ready"} 2.0',
        'config_condition{config="c",status="Unknown",type="Ready"} 1.0',
        'config_condition{config="c",status="True",type="Ready"} 0.0',
        'config_paused{config="c"} 0.0',
    }
    telemetry.report("c", None)
    assert lines(telemetry) == set()


def test_what_is_wrong_has_a_series_with_a_reason_and_leaves_none_when_it_is_over() -> None:
    telemetry = Telemetry()
    summary = StatusSummary(status="DevicesUnhealthy")
    failed = (FailedNode("p", "a", "DriverUnavailable"), FailedNode("p", "b", "CreateContainerConfigError"))
    seen = Seen(
        status=ConfigStatus(summary=summary), faults=("NothingFound", "CreateContainerConfigError"), failed=failed
    )
    telemetry.report("c", seen)
    wrong = {
        'config_status{config="c",status="DevicesUnhealthy"} 1.0',
        'config_fault{config="c",reason="NothingFound"} 1.0',
        'config_fault{config="c",reason="Other"} 1.0',
        'node_failed{config="c",node="a",pool="p",reason="DriverUnavailable"} 1.0',
        'node_failed{config="c",node="b",pool="p",reason="Other"} 1.0',
    }
    assert lines(telemetry) == {*wrong, 'config_paused{config="c"} 0.0'}
    telemetry.report("c", Seen(status=ConfigStatus(summary=StatusSummary(status="OK"))))
    assert lines(telemetry) == {'config_status{config="c",status="OK"} 1.0', 'config_paused{config="c"} 0.0'}


def test_devices_that_are_not_healthy_count_by_node_and_reason_unless_they_are_withheld() -> None:
    telemetry = Telemetry()
    resource = InventoryResource(name="r", devices=9, healthy=2, unhealthy=6, unknown=1)

    def device(number: int, reason: str, **more: str) -> InventoryDevice:
        health = DeviceHealth.UNKNOWN if reason == "NoAnswer" else DeviceHealth.UNHEALTHY
        return InventoryDevice(id=str(number), resource="r", health=health, reason=reason, **more)

    devices = (
        device(1, "Xid79"),
        device(2, "Xid79"),
        device(3, "some word"),
        device(4, "Missing", withheld="Cordoned"),
        device(5, "NoAnswer"),
        InventoryDevice(id="6", resource="r", health=DeviceHealth.HEALTHY, stale_grant="container c of pod a/b"),
    )
    inventory = InventoryStatus(pool_name="p", resources=(resource,), devices=devices, devices_omitted=3)
    telemetry.report("c", Seen(status=ConfigStatus(), inventories={"a": inventory}))
    found = {line for line in lines(telemetry) if line.startswith(("devices_not", "stale"))}
    series = 'devices_not_healthy{config="c",health="%s",node="a",pool="p",reason="%s",resource="r"} %s'
    assert found == {
        series % ("Unhealthy", "Xid79", 2.0),
        series % ("Unhealthy", "Other", 3.0),  # a word of its own, and two for which the inventory had no room
        series % ("Unknown", "NoAnswer", 1.0),
        'stale_grants{config="c",node="a",pool="p",resource="r"} 1.0',
    }


async def test_probes_tell_the_phase_and_a_silent_watch() -> None:
    health = Liveness(stale=10)
    runner = await serve(health, Telemetry().registry, listen="127.0.0.1:0")
    host, port = runner.addresses[0]
    silence = {"nodes": 5.0}
    health.silences = lambda: silence
    try:
        async with ClientSession(f"http://{host}:{port}") as session:

            async def answer(path: str) -> tuple[int, str]:
                async with session.get(path) as response:
                    return response.status, await response.text()

            health.phase = "standing by"
            assert await answer("/readyz") == (503, "standing by")
            health.ready = True
            assert await answer("/readyz") == (200, "standing by")
            assert (await answer("/healthz"))[0] == 200
            silence["nodes"] = 11.0
            assert await answer("/healthz") == (503, "the watch of nodes gave no sign of life for 11 s")
            assert "device_operator_leader 0.0" in (await answer("/metrics"))[1]
    finally:
        await runner.cleanup()
