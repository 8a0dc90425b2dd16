"""NVML beside an event loop: deadlines, events, samples."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import fakenvml
import pytest
from device_agent.nvml.model import GpuSample, XidEvent
from device_agent.nvml.session import NvmlSession
from device_agent.runtime.settings import Settings
from fakenvml import a100s, nvswitched
from unit.nvml.conftest import GpuNode, MakeNode


async def until(condition: Callable[[], object], *, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 what it waits for happens in threads of C code
            await asyncio.sleep(0.002)


@pytest.fixture
async def session_of() -> AsyncIterator[Callable[..., NvmlSession]]:
    made: list[tuple[NvmlSession, GpuNode]] = []

    def make(node: GpuNode, **values: float) -> NvmlSession:
        settings = replace(Settings(nvml_deadline=0.8, nvml_restart=0.5), **values)
        session = NvmlSession(driver_root=node.driver_root, roots=node.roots, settings=settings, own_dev=node.roots.dev)
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


def listen(session: NvmlSession) -> tuple[list[XidEvent], list[float]]:
    """The events and the times of the hints, as they come."""
    events: list[XidEvent] = []
    woken: list[float] = []
    session.on_event = events.append
    session.on_wake = lambda: woken.append(time.monotonic())
    return events, woken


async def test_an_xid_arrives_within_half_a_second_with_its_gpu(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(8)
    session = session_of(node)
    events, _ = listen(session)
    await session.look()
    begun = time.monotonic()
    node.scenario.xid(3, 79)
    await until(lambda: events)
    assert time.monotonic() - begun < 0.5
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


async def test_events_of_the_others_come_while_a_gpu_is_lost(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(4)
    session = session_of(node)
    events, woken = listen(session)
    await session.look()
    node.scenario.lose(0)
    await until(lambda: woken)
    begun = time.monotonic()
    node.scenario.xid(2, 48)
    await until(lambda: events)
    assert time.monotonic() - begun < 0.5
    assert len(woken) <= 3, "an error that goes on is one reason to look"


async def test_events_come_after_a_reload_of_the_driver(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    session = session_of(node)
    events, woken = listen(session)
    await session.look()
    node.scenario.reload_driver()
    await until(lambda: woken)
    assert (await session.look()).epoch == 2
    node.scenario.xid(1, 31)
    await until(lambda: events)


async def test_a_double_bit_error_is_a_reason_to_look(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    session = session_of(node)
    events, woken = listen(session)
    await session.look()
    node.scenario.xid(1, 1, kind=fakenvml.TYPE_DOUBLE_BIT)
    await until(lambda: woken)
    assert events == []


async def test_a_driver_without_events_is_looked_at_all_the_same(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    node.scenario.fail("nvmlEventSetCreate", fakenvml.NOT_SUPPORTED)
    session = session_of(node)
    view = await session.look()
    assert (len(view.gpus), view.unavailable) == (2, "")


async def test_a_hang_names_the_call_and_keeps_what_was_known(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(3)
    session = session_of(node)
    good = await session.look()
    node.scenario.hang("nvmlDeviceGetTotalEccErrors", gpu=1, seconds=30)
    begun = time.monotonic()
    view = await session.look()
    assert time.monotonic() - begun < 1.3
    assert view.unavailable == "NVML hangs: nvmlDeviceGetTotalEccErrors of GPU 1 does not answer"
    assert [gpu.uuid for gpu in view.gpus] == [gpu.uuid for gpu in good.gpus]
    assert {gpu.state.known for gpu in view.gpus} == {False}
    assert session.last == good
    assert session.hung
    begun = time.monotonic()
    again = await session.look()
    assert again == view
    assert await session.sample() == ()
    assert time.monotonic() - begun < 0.1, "nobody waits a second time"
    node.scenario.hang("nvmlDeviceGetTotalEccErrors", gpu=1, seconds=0)
    await until(lambda: not session.hung)
    assert await session.look() == good


async def test_a_hang_from_the_start_is_a_reason(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(3)
    node.scenario.hang("nvmlInitWithFlags", seconds=30)
    session = session_of(node)
    view = await session.look()
    assert (view.unavailable, view.gpus) == ("NVML hangs: nvmlInitWithFlags does not answer", ())
    assert session.last is None


async def test_the_loop_turns_while_the_driver_is_slow(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(2)
    node.scenario.slow("nvmlDeviceGetCount_v2", seconds=0.15)
    session = session_of(node)
    longest = 0.0
    look = asyncio.ensure_future(session.look())
    while not look.done():
        before = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - before)
    assert look.result().unavailable == ""
    assert longest < 0.12


async def test_looks_and_samples_take_turns(node_of: MakeNode, session_of: MakeSession) -> None:
    session = session_of(node_of(2))
    await session.look()
    results = await asyncio.gather(session.look(), session.sample(), session.look(), session.sample())
    assert [len(getattr(r, "gpus", r)) for r in results] == [2, 2, 2, 2]
    assert results[0] == results[2]


async def test_samples_tell_what_each_device_tells(node_of: MakeNode, session_of: MakeSession) -> None:
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
    assert await session.sample() == (), "nobody has looked yet"
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


async def test_what_the_driver_keeps_for_itself_is_not_in_use(node_of: MakeNode, session_of: MakeSession) -> None:
    """As nvidia-smi tells it; a driver before R510 does not tell the two apart."""
    node = node_of(1)
    session = session_of(node)
    await session.look()
    assert [s.memory_used_mib for s in await session.sample()] == [0]
    node.scenario.fail("nvmlDeviceGetMemoryInfo_v2", fakenvml.FUNCTION_NOT_FOUND)
    assert [s.memory_used_mib for s in await session.sample()] == [600]


async def test_a_lost_gpu_has_no_sample_and_the_others_have(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(3)
    session = session_of(node)
    await session.look()
    node.scenario.lose(1)
    assert [s.uuid for s in await session.sample()] == [fakenvml.uuid(0), fakenvml.uuid(2)]


async def test_a_slow_driver_is_no_hanging_one(node_of: MakeNode, session_of: MakeSession) -> None:
    """Each call takes a fraction of the deadline, all of them many times as long."""
    node = node_of(8)
    node.scenario.slow(seconds=0.01)
    session = session_of(node)
    begun = time.monotonic()
    view = await session.look()
    assert time.monotonic() - begun > 0.8, "longer than the deadline of a call"
    assert (view.unavailable, len(view.gpus)) == ("", 8)
    assert {gpu.state.known for gpu in view.gpus} == {True}
    node.scenario.gpus[7].ecc_uncorrected = 3
    node.scenario.write()
    assert (await session.look()).gpus[7].state.failures[0][0] == "UncorrectableEcc"


async def test_a_look_that_hung_is_not_lost_when_it_comes_back(node_of: MakeNode, session_of: MakeSession) -> None:
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


async def test_a_first_look_that_takes_very_long_says_so(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(4)
    node.scenario.slow(seconds=0.02)
    session = session_of(node, nvml_slow=0.3)
    view = await session.look()
    assert view.gpus == ()
    assert view.unavailable.startswith("NVML is slow: the first look at the GPUs takes more than 0.3 s")
    while view.unavailable:
        view = await session.look()
    assert len(view.gpus) == 4


async def test_a_look_does_not_wait_for_all_the_samples(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(8)
    session = session_of(node)
    await session.look()
    assert len(await session.sample()) == 8
    node.scenario.gpus[7].temperature = 77
    node.scenario.slow("nvmlDeviceGetPowerUsage", seconds=0.2)  # 1.6 s for the samples of all
    sample = asyncio.ensure_future(session.sample())
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    await session.look()
    assert time.monotonic() - begun < 0.8
    assert len(await sample) == 8, "those not reached are as they were"
    samples: tuple[GpuSample, ...] = ()
    for _ in range(8):
        sample = asyncio.ensure_future(session.sample())
        await asyncio.sleep(0.01)
        await session.look()
        samples = await sample
    assert samples[7].temperature_celsius == 77, "each has its turn"


async def test_a_slow_look_does_not_keep_the_driver_open_for_long(node_of: MakeNode, session_of: MakeSession) -> None:
    node = node_of(8)
    session = session_of(node)
    await session.look()
    node.scenario.slow("nvmlDeviceGetTemperature", seconds=0.3)
    look = asyncio.ensure_future(session.look())
    await asyncio.sleep(0.05)
    begun = time.monotonic()
    await session.close()
    assert time.monotonic() - begun < 1.5
    assert look.done()
    assert not session.hung
