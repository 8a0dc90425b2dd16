"""Which registrations run while names come and go."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from device_agent.contract.document import Document
from device_agent.kubelet.served_names import ServedNames
from device_agent.table.device_table import DeviceTable

NAME = "example.com/a"


class SlowToEnd:
    """A registration whose server stops only when the test says so."""

    running = 0
    at_once = 0

    def __init__(self, begun: asyncio.Event, may_end: asyncio.Event) -> None:
        self._begun = begun
        self._may_end = may_end

    async def run(self) -> None:
        cls = type(self)
        cls.running += 1
        cls.at_once = max(cls.at_once, cls.running)
        self._begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self._may_end.wait()
            cls.running -= 1


async def test_a_name_that_comes_and_goes_quickly_has_one_registration_at_a_time() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    def spawn(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work(), name=name)

    served = ServedNames(DeviceTable(Document(())), make=lambda _: SlowToEnd(begun, may_end), spawn=spawn, settle=0.0)  # type: ignore[arg-type, return-value]
    served.offer(NAME)
    await asyncio.wait_for(begun.wait(), 5)
    begun.clear()
    withdrawn = []
    for _ in range(3):
        withdrawn.append(served.withdraw(NAME))
        served.offer(NAME)
        await asyncio.sleep(0)
    assert not begun.is_set(), "the first one still runs"
    may_end.set()
    await asyncio.wait(withdrawn, timeout=5)
    await asyncio.wait_for(begun.wait(), 5)
    assert SlowToEnd.at_once == 1
    await asyncio.wait([served.withdraw(NAME)], timeout=5)
    assert SlowToEnd.running == 0
