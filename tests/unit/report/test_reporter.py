"""When the inventory is written: what alone is a reason to write, and what goes along."""

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

from device_agent.contract.codec import encode
from device_agent.contract.inventory import HistoryState, InventoryStatus, InventoryTransition
from device_agent.report.inventory import AgentIdentity
from device_agent.report.reporter import Reporter
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.settings import Settings
from unit.report.test_orders import Answers

WHO = AgentIdentity(node="n", config="lab", config_uid="u", pool="p", version="1")
CHANGE = InventoryTransition(time="2026-01-01T00:00:00Z", resource="r", id="a", to=HistoryState.GONE)


async def written(*statuses: InventoryStatus) -> list[dict[str, Any]]:
    """What the API server gets until it has the last one, if `build` gives these one after the other."""
    server, left = Answers(*({} for _ in statuses)), list(statuses)

    def build() -> InventoryStatus:
        asyncio.get_running_loop().call_soon(reporter.changed)
        return left.pop(0) if len(left) > 1 else left[0]

    settings = Settings(report_first=0.0, report_interval=0.0)
    reporter = Reporter(server, identity=WHO, build=build, settings=settings, metrics=Metrics(version="1"))
    task = asyncio.create_task(reporter.run())
    async with asyncio.timeout(30):
        while not any(b["status"]["poolName"] == statuses[-1].pool_name for _, _, b, _ in server.asked):  # noqa: ASYNC110 - a thread asks
            await asyncio.sleep(0.001)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return [body["status"] for _, _, body, _ in server.asked]


def test_the_history_goes_with_the_next_write_and_is_no_reason_for_one():
    first = InventoryStatus(pool_name="one")
    happened = replace(first, history=(CHANGE,), history_omitted=2)
    bodies = asyncio.run(written(first, happened, replace(happened, pool_name="two")))
    assert [(body["poolName"], body["history"], body["historyOmitted"]) for body in bodies] == [
        ("one", None, None),
        ("two", [encode(CHANGE)], 2),
    ]
