"""The NVML session in an event loop: deadlines, events, samples."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import fakenvml
import pytest
from device_agent.nvml.model import NvmlView, XidEvent
from device_agent.nvml.session import NvmlSession
from device_agent.runtime.settings import Settings
from fakenvml import a100s, nvswitched
from unit.nvml.conftest import Clock, GpuNode, MakeNode


async def until(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 the condition changes in threads of C code
            await asyncio.sleep(0.002)


@pytest.fixture
async def session_of() -> AsyncIterator[Callable[..., NvmlSession]]:
    made: list[tuple[NvmlSession, GpuNode]] = []

    def make(node: GpuNode, *, clock: Callable[[], float] = time.monotonic, **values: float) -> NvmlSession:
        settings = replace(Settings(nvml_deadline=0.8, nvml_restart=0.5), **values)
        session = NvmlSession(
            driver_root=node.driver_root, roots=node.roots, settings=settings, own_dev=node.roots.dev, clock=clock
        )
        made.append((session, node))
        return session

    yield make
    for session, node in made:
        node.scenario._rules.clear()
        node.scenario.write()
        await until(lambda session=session: not session.hung)
        await session.close()
    assert "nvml-events" not in {thread.name for thread in threading.enumerate()}


MakeSession = Callable[..., NvmlSession]


def listen(session: NvmlSession) -> tuple[list[XidEvent], list[str]]:
    """Lists that get the events, and one item for each hint that a look may show something new."""
    events: list[XidEvent] = []
    woken: list[str] = []
    session.on_event = events.append
    session.on_wake = lambda: woken.append("wake")
    return events, woken


async def called(session: NvmlSession, call: str) -> None:
    """Waits until the driver is in this call."""
    await until(lambda: session._driver.progress[0] == call)


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that ends without waiting for anything."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("it waits")


async def test_an_xid_arrives_with_its_gpu_without_another_look(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(8)
    session = session_of(node)
    events, _ = listen(session)
    await session.look()
    begun = time.monotonic()
    node.scenario.xid(3, 79)
    await until(lambda: events)
    assert [(e.uuid, e.xid, e.gi, e.ci) for e in events] == [(fakenvml.uuid(3), 79, None, None)]
    assert begun <= events[0].at <= time.monotonic()


async def test_an_xid_names_the_mig_device(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    node.repartition(1, "1g.5gb", "1g.5gb")
    session = session_of(node)
    events, _ = listen(session)
    await session.look()
    node.scenario.xid(1, 94, gi=2, ci=0)
    await until(lambda: events)
    assert [(e.uuid, e.gi, e.ci) for e in events] == [(fakenvml.uuid(1), 2, 0)]


async def test_events_of_other_gpus_arrive_while_a_gpu_is_lost(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(4)
    session = session_of(node)
    events, woken = listen(session)
    await session.look()
    node.scenario.lose(0)
    await until(lambda: woken)
    node.scenario.xid(2, 48)
    await until(lambda: events)
    assert len(woken) <= 3, "a repeated error asks for one look only"


async def test_events_arrive_after_a_reload_of_the_driver(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    session = session_of(node)
    events, woken = listen(session)
    await session.look()
    node.scenario.reload_driver()
    await until(lambda: woken)
    assert (await session.look()).epoch == 2
    node.scenario.xid(1, 31)
    await until(lambda: events)


async def test_a_double_bit_error_asks_for_a_look(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    session = session_of(node)
    events, woken = listen(session)
    await session.look()
    node.scenario.xid(1, 1, kind=fakenvml.TYPE_DOUBLE_BIT)
    await until(lambda: woken)
    assert events == []


async def test_looks_work_with_a_driver_that_has_no_events(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    node.scenario.fail("nvmlEventSetCreate", fakenvml.NOT_SUPPORTED)
    session = session_of(node)
    view = await session.look()
    assert (len(view.gpus), view.unavailable) == (2, "")


async def test_a_hang_names_the_call_and_keeps_the_gpus_as_unknown(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(3)
    session = session_of(node)
    good = await session.look()
    node.scenario.hang("nvmlDeviceGetTotalEccErrors", gpu=1, seconds=300)
    view = await session.look()
    assert session.hung, "the look ended before the call"
    assert view.unavailable == "NVML hangs: nvmlDeviceGetTotalEccErrors of GPU 1 does not answer"
    assert [gpu.uuid for gpu in view.gpus] == [gpu.uuid for gpu in good.gpus]
    assert {gpu.state.known for gpu in view.gpus} == {False}
    assert session.last == good
    assert at_once(session.look()) == view
    assert at_once(session.sample()) == ()
    node.scenario.hang("nvmlDeviceGetTotalEccErrors", gpu=1, seconds=0)
    await until(lambda: not session.hung)
    assert await session.look() == good


async def test_a_hang_during_the_start_is_reported(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(3)
    node.scenario.hang("nvmlInitWithFlags", seconds=30)
    session = session_of(node)
    view = await session.look()
    assert (view.unavailable, view.gpus) == ("NVML hangs: nvmlInitWithFlags does not answer", ())
    assert session.last is None


async def test_the_loop_runs_during_a_call_of_the_driver(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    node.scenario.hang("nvmlDeviceGetCount_v2", seconds=300)
    session = session_of(node, nvml_deadline=300)
    look = asyncio.ensure_future(session.look())
    await called(session, "nvmlDeviceGetCount")  # the loop runs during the call
    assert not look.done()
    node.scenario.hang("nvmlDeviceGetCount_v2", seconds=0)
    assert (await look).unavailable == ""


async def test_looks_and_samples_take_turns(node_of: MakeNode, session_of: MakeSession) -> None:
    session = session_of(node_of(2))
    await session.look()
    results = await asyncio.gather(session.look(), session.sample(), session.look(), session.sample())
    assert [len(getattr(r, "gpus", r)) for r in results] == [2, 2, 2, 2]
    assert results[0] == results[2]


async def test_samples_have_the_values_of_each_device(node_of: MakeNode, session_of: MakeSession) -> None:
    gpus = nvswitched(a100s(2))
    gpus[0].temperature, gpus[0].power, gpus[0].utilisation, gpus[0].used = 61, 251_500, 87, 30 << 30
    gpus[0].sm_clock, gpus[0].memory_clock, gpus[0].link_errors = 1410, 1215, 7
    gpus[0].ecc_corrected, gpus[0].ecc_uncorrected = 5, 1
    gpus[1].temperature = gpus[1].power = gpus[1].link_errors = gpus[1].ecc_corrected = gpus[1].ecc_uncorrected = -1
    node = node_of(gpus)
    [mig] = node.repartition(1, "2g.10gb")
    mig.used_mb = 100
    node.scenario.write()
    session = session_of(node)
    assert await session.sample() == (), "before the first look"
    await session.look()
    full, half, part = await session.sample()
    assert (full.uuid, full.temperature_celsius, full.power_watts) == (fakenvml.uuid(0), 61, 251.5)
    assert (full.utilisation_percent, full.memory_used_mib, full.memory_total_mib) == (87, 30720, 40960)
    assert (full.sm_clock_mhz, full.memory_clock_mhz) == (1410, 1215)
    assert (full.ecc_corrected, full.ecc_uncorrected, full.nvlink_errors) == (5, 1, 7)
    assert half.uuid == fakenvml.uuid(1)
    assert (half.temperature_celsius, half.power_watts, half.utilisation_percent) == (None, None, None)
    assert (half.ecc_corrected, half.nvlink_errors) == (None, None)
    assert (part.uuid, part.memory_used_mib, part.memory_total_mib) == (mig.uuid, 100, 9856)


async def test_memory_that_the_driver_reserves_is_not_in_use(node_of: MakeNode, session_of: MakeSession) -> None:
    """As nvidia-smi shows it. A driver before R510 counts that memory as used."""
    node = node_of(1)
    session = session_of(node)
    await session.look()
    assert [s.memory_used_mib for s in await session.sample()] == [0]
    node.scenario.fail("nvmlDeviceGetMemoryInfo_v2", fakenvml.FUNCTION_NOT_FOUND)
    assert [s.memory_used_mib for s in await session.sample()] == [600]


async def test_a_lost_gpu_has_no_sample(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(3)
    session = session_of(node)
    await session.look()
    node.scenario.lose(1)
    assert [s.uuid for s in await session.sample()] == [fakenvml.uuid(0), fakenvml.uuid(2)]


async def test_a_look_may_take_longer_than_the_deadline_of_one_call(
    node_of: MakeNode, session_of: MakeSession, clock: Clock
) -> None:
    node = node_of(4)
    for gpu in range(4):
        node.scenario.hang("nvmlDeviceGetTemperature", gpu=gpu, seconds=300)
    session = session_of(node, clock=clock, nvml_deadline=0.05)
    look = asyncio.ensure_future(session.look())
    for gpu in range(4):
        await called(session, f"nvmlDeviceGetTemperature of GPU {gpu}")
        clock.now += 0.04
        reads = clock.reads
        await until(
            lambda reads=reads: clock.reads >= reads + 4
        )  # the session has compared this time with the deadline
        node.scenario.hang("nvmlDeviceGetTemperature", gpu=gpu, seconds=0)
    view = await look
    assert (view.unavailable, len(view.gpus)) == ("", 4)
    assert {gpu.state.known for gpu in view.gpus} == {True}
    node.scenario.gpus[3].ecc_uncorrected = 3
    node.scenario.write()
    assert (await session.look()).gpus[3].state.failures[0][0] == "UncorrectableEcc"


async def test_the_answer_of_a_look_that_hung_is_returned_by_the_next_look(
    node_of: MakeNode, session_of: MakeSession
) -> None:
    node = node_of(2)
    session = session_of(node)
    await session.look()
    node.scenario.gpus[1].ecc_uncorrected = 1
    node.scenario.hang("nvmlDeviceGetTotalEccErrors", gpu=0, seconds=30)
    assert (await session.look()).unavailable.startswith("NVML hangs")
    node.scenario.hang("nvmlDeviceGetTotalEccErrors", gpu=0, seconds=0)
    await until(lambda: not session.hung)
    node.scenario.hang(seconds=30)
    view = await session.look()
    assert (view.unavailable, view.gpus[1].state.failures[0][0]) == ("", "UncorrectableEcc")


async def test_a_first_look_that_takes_very_long_is_reported(
    node_of: MakeNode, session_of: MakeSession, clock: Clock
) -> None:
    node = node_of(4)
    node.scenario.hang("nvmlDeviceGetTemperature", gpu=0, seconds=300)
    session = session_of(node, clock=clock, nvml_slow=0.3)
    look = asyncio.ensure_future(session.look())
    await called(session, "nvmlDeviceGetTemperature of GPU 0")
    clock.now += 0.4  # the call has 0.4 s left
    view: NvmlView = await look
    assert view.gpus == ()
    assert view.unavailable.startswith("NVML is slow: the first look at the GPUs takes more than 0.3 s")
    node.scenario.hang("nvmlDeviceGetTemperature", gpu=0, seconds=0)
    while view.unavailable:
        view = await session.look()
    assert len(view.gpus) == 4


async def test_a_look_ends_sampling_early_and_the_next_sampling_goes_on(
    node_of: MakeNode, session_of: MakeSession, clock: Clock
) -> None:
    node = node_of(8)
    session = session_of(node, clock=clock)
    await session.look()
    assert len(await session.sample()) == 8
    for gpu in node.scenario.gpus:
        gpu.temperature = 77
    for gpu in range(8):
        node.scenario.hang("nvmlDeviceGetPowerUsage", gpu=gpu, seconds=300)
        sample = asyncio.ensure_future(session.sample())
        await called(session, f"nvmlDeviceGetPowerUsage of GPU {gpu}")
        look = asyncio.ensure_future(session.look())
        await until(lambda: session._waiting == 1)
        clock.now += 0.5
        node.scenario.hang("nvmlDeviceGetPowerUsage", gpu=gpu, seconds=0)
        new = [s.temperature_celsius == 77 for s in await sample]
        assert new == [True] * (gpu + 1) + [False] * (7 - gpu), "the others keep their older sample"
        assert (await look).unavailable == ""


async def test_closing_ends_a_look_after_the_current_gpu(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(8)
    session = session_of(node, nvml_deadline=300)
    await session.look()
    node.scenario.hang("nvmlDeviceGetTemperature", gpu=0, seconds=300)
    look = asyncio.ensure_future(session.look())
    await called(session, "nvmlDeviceGetTemperature of GPU 0")
    closing = asyncio.ensure_future(session.close())
    await until(lambda: session._driver._hurried)
    node.scenario.hang("nvmlDeviceGetTemperature", gpu=0, seconds=0)
    await closing
    assert [gpu.state.asked for gpu in (await look).gpus] == [True] + [False] * 7
    assert not session.hung
