"""A slow driver that answers every call: a look ends after a while, and the next look reads the remaining GPUs."""

import fakenvml
from device_agent.health.news import Answer
from device_agent.nvml import health_news
from unit.nvml.conftest import Clock, MakeDriver, MakeNode

TEMPERATURE = "nvmlDeviceGetTemperature"
"""A look calls it once for each GPU."""


def test_a_look_that_takes_too_long_leaves_gpus_to_the_next(
    node_of: MakeNode, driver_of: MakeDriver, clock: Clock
) -> None:
    node = node_of(6)
    driver = driver_of(node, slow_seconds=50, clock=clock)
    first = driver.look()
    assert (first.errors, [g.state.asked for g in first.gpus]) == ((), [True] * 6)
    clock.takes[TEMPERATURE] = 30
    for gpu in node.scenario.gpus:
        gpu.ecc_uncorrected = 1
    node.scenario.write()
    view = driver.look()
    assert [g.uuid for g in view.gpus] == [g.uuid for g in first.gpus]
    asked = [True, True, False, False, False, False]
    assert [g.state.asked for g in view.gpus] == asked
    assert [bool(g.state.failures) for g in view.gpus] == asked, "the others are as they were"
    assert {g.state.known for g in view.gpus} == {True}
    assert any(error.startswith("NVML is slow: ") for error in view.errors)
    for _ in range(2):
        view = driver.look()
    assert all(g.state.failures for g in view.gpus), "each GPU was read in one of three looks"
    clock.takes.clear()
    assert all(g.state.asked for g in driver.look().gpus)


def test_a_gpu_that_was_not_read_has_no_fresh_check(node_of: MakeNode, driver_of: MakeDriver, clock: Clock) -> None:
    node = node_of(4)
    driver = driver_of(node, slow_seconds=10, clock=clock)
    driver.look()
    clock.takes[TEMPERATURE] = 30
    look = health_news.look(driver.look())
    assert {uuid for uuid, check in look.checks.items() if check.fresh} == {fakenvml.uuid(0)}
    assert {check.answer for check in look.checks.values()} == {Answer.GOOD}


def test_the_first_look_after_a_start_of_the_library_reads_all_gpus(
    node_of: MakeNode, driver_of: MakeDriver, clock: Clock
) -> None:
    """Before that look, an index does not identify a GPU."""
    node = node_of(4)
    clock.takes[TEMPERATURE] = 20
    driver = driver_of(node, slow_seconds=10, clock=clock)
    assert [g.state.asked for g in driver.look().gpus] == [True] * 4
    assert sum(g.state.asked for g in driver.look().gpus) == 1
    node.scenario.reload_driver()
    assert [g.state.asked for g in driver.look().gpus] == [True] * 4


def test_a_gpu_that_was_not_read_is_not_confused_with_one_that_hides_its_uuid(
    node_of: MakeNode, driver_of: MakeDriver, clock: Clock
) -> None:
    node = node_of(4)
    driver = driver_of(node, slow_seconds=10, clock=clock)
    driver.look()
    clock.takes[TEMPERATURE] = 20
    node.scenario.fail("nvmlDeviceGetUUID", fakenvml.UNKNOWN, gpu=1)
    for _ in range(6):
        view = driver.look()
        assert [g.uuid for g in view.gpus] == [fakenvml.uuid(n) for n in range(4)]
        assert all(g.state.known for g in view.gpus if g.index != 1)
