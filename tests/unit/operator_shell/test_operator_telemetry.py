"""Metrics and probes."""

from aiohttp import ClientSession
from device_agent.contract.inventory import InventoryResource, InventoryStatus
from device_agent.contract.status import ConditionStatus, ConfigCondition, ConfigStatus, PoolNodes, PoolStatus
from device_operator.runtime.metrics import Telemetry
from device_operator.runtime.probes import Liveness, serve
from prometheus_client import generate_latest


def test_devices_are_counted_by_pool_resource_and_health_until_the_object_is_gone() -> None:
    seen = Telemetry()
    resource = InventoryResource(
        name="r", devices=4, healthy=2, unhealthy=1, unknown=1, withheld=2, capacity=8, allocated=3
    )
    statuses = [InventoryStatus(pool_name="p", resources=(resource,))] * 2
    ready = ConfigCondition(
        type="Ready", status=ConditionStatus.UNKNOWN, last_transition_time="t", reason="NoReadyNodes", message=""
    )
    pool = PoolStatus(name="p", nodes=PoolNodes(matched=3, ready=2))
    seen.report("c", ConfigStatus(conditions=(ready,), pools=(pool,)), statuses)
    text = generate_latest(seen.registry).decode()
    for line in (
        'device_operator_devices{config="c",health="Healthy",pool="p",resource="r"} 4.0',
        'device_operator_devices{config="c",health="Unhealthy",pool="p",resource="r"} 2.0',
        'device_operator_devices{config="c",health="Unknown",pool="p",resource="r"} 2.0',
        'device_operator_devices_withheld{config="c",pool="p",resource="r"} 4.0',
        'device_operator_capacity{config="c",pool="p",resource="r"} 16.0',
        'device_operator_allocated{config="c",pool="p",resource="r"} 6.0',
        'device_operator_nodes{config="c",pool="p",state="matched"} 3.0',
        'device_operator_nodes{config="c",pool="p",state="ready"} 2.0',
        'device_operator_config_condition{config="c",status="Unknown",type="Ready"} 1.0',
        'device_operator_config_condition{config="c",status="True",type="Ready"} 0.0',
    ):
        assert line in text
    seen.report("c", None, ())
    assert 'config="c"' not in generate_latest(seen.registry).decode()


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
