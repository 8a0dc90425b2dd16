"""Which registrations run while names come and go."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from device_agent.contract.document import Document
from device_agent.kubelet.served_names import ServedNames
from device_agent.table.device_table import DeviceTable

NAME = "example.com/a"


class SlowToEnd:
    """A registration whose server takes its time to stop."""

    running = 0
    at_once = 0

    def __init__(self, begun: asyncio.Event) -> None:
        self._begun = begun

    async def run(self) -> None:
        cls = type(self)
        cls.running += 1
        cls.at_once = max(cls.at_once, cls.running)
        self._begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cls.running -= 1


async def test_a_name_that_comes_and_goes_quickly_is_never_served_twice() -> None:
    begun = asyncio.Event()

    def spawn(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work(), name=name)

    served = ServedNames(DeviceTable(Document(())), make=lambda _: SlowToEnd(begun), spawn=spawn, settle=0.0)  # type: ignore[arg-type, return-value]
    served.offer(NAME)
    await asyncio.wait_for(begun.wait(), 5)
    begun.clear()
    withdrawn = []
    for _ in range(3):
        withdrawn.append(served.withdraw(NAME))
        served.offer(NAME)
        await asyncio.sleep(0)
    await asyncio.wait(withdrawn, timeout=5)
    await asyncio.wait_for(begun.wait(), 5)
    assert SlowToEnd.at_once == 1
    await asyncio.wait([served.withdraw(NAME)], timeout=5)
    assert SlowToEnd.running == 0
