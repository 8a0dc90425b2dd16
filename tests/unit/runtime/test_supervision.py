"""What happens to tasks that fail, and to all tasks at the end."""

import asyncio
import logging

import pytest
from device_agent.runtime.supervision import Supervisor


class Failing:
    """Work that fails `times` times and then never ends."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.starts = 0
        self.lasting = asyncio.Event()

    async def __call__(self) -> None:
        self.starts += 1
        if self.starts <= self.times:
            raise ZeroDivisionError
        self.lasting.set()
        await asyncio.Event().wait()


async def test_a_kept_task_that_fails_is_restarted(caplog: pytest.LogCaptureFixture) -> None:
    tasks, work = Supervisor(restart=0), Failing(2)
    task = tasks.keep("work", work)
    await asyncio.wait_for(work.lasting.wait(), 5)
    assert work.starts == 3
    assert [(r.task, r.exc_info[0]) for r in caplog.records] == [("work", ZeroDivisionError)] * 2
    await tasks.stop()
    assert task.cancelled()


async def test_a_task_that_runs_once_is_not_restarted(caplog: pytest.LogCaptureFixture) -> None:
    tasks, work = Supervisor(restart=0), Failing(1)
    await asyncio.wait_for(tasks.once("work", work), 5)
    assert work.starts == 1
    assert [(r.levelno, r.task, r.exc_info[0]) for r in caplog.records] == [(logging.ERROR, "work", ZeroDivisionError)]


async def test_a_failing_task_does_not_end_the_others() -> None:
    tasks, failing, other = Supervisor(restart=0), Failing(10_000), Failing(0)
    tasks.keep("failing", failing)
    task = tasks.keep("other", other)
    await asyncio.wait_for(other.lasting.wait(), 5)
    assert not task.done()
    await tasks.stop()


async def test_stop_also_cancels_tasks_that_start_while_it_waits() -> None:
    tasks, late = Supervisor(), Failing(0)

    async def ends_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.keep("late", late)

    slow = tasks.keep("slow", ends_slowly)
    await asyncio.sleep(0)
    await asyncio.wait_for(tasks.stop(), 5)
    assert slow.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}
