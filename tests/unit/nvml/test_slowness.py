"""A driver that answers every call, and takes its time: no look is for ever, and each GPU has its turn."""

import fakenvml
from device_agent.health.news import Answer
from device_agent.nvml import health_news
from unit.nvml.conftest import MakeDriver, MakeNode


def test_a_look_that_takes_too_long_goes_on_with_the_next(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(6)
    driver = driver_of(node, slow_seconds=0.05)
    first = driver.look()
    assert (first.errors, [g.state.asked for g in first.gpus]) == ((), [True] * 6)
    node.scenario.slow("nvmlDeviceGetTemperature", seconds=0.03)
    for gpu in node.scenario.gpus:
        gpu.ecc_uncorrected = 1
    node.scenario.write()
    view = driver.look()
    assert [g.uuid for g in view.gpus] == [g.uuid for g in first.gpus]
    asked = [g.state.asked for g in view.gpus]
    assert 0 < sum(asked) < 6
    assert [bool(g.state.failures) for g in view.gpus] == asked, "the others are as they were"
    assert {g.state.known for g in view.gpus} == {True}
    assert any(error.startswith("NVML is slow: ") for error in view.errors)
    for _ in range(3):
        view = driver.look()
    assert all(g.state.failures for g in view.gpus), "each has had its turn"
    node.scenario.slow("nvmlDeviceGetTemperature", seconds=0)
    assert all(g.state.asked for g in driver.look().gpus)


def test_a_gpu_that_had_no_turn_has_no_check_that_counts(node_of: MakeNode, driver_of: MakeDriver) -> None:
    node = node_of(4)
    driver = driver_of(node, slow_seconds=0.01)
    driver.look()
    node.scenario.slow("nvmlDeviceGetTemperature", seconds=0.03)
    look = health_news.look(driver.look())
    assert {uuid for uuid, check in look.checks.items() if check.fresh} == {fakenvml.uuid(0)}
    assert {check.answer for check in look.checks.values()} == {Answer.GOOD}


def test_the_first_look_after_a_start_of_the_library_reads_them_all(node_of: MakeNode, driver_of: MakeDriver) -> None:
    """Until it has, a number says nothing of which GPU it is."""
    node = node_of(4)
    node.scenario.slow("nvmlDeviceGetTemperature", seconds=0.02)
    driver = driver_of(node, slow_seconds=0.01)
    assert [g.state.asked for g in driver.look().gpus] == [True] * 4
    assert sum(g.state.asked for g in driver.look().gpus) == 1
    node.scenario.reload_driver()
    assert [g.state.asked for g in driver.look().gpus] == [True] * 4


def test_who_has_no_turn_is_not_taken_for_one_that_does_not_say_its_name(
    node_of: MakeNode, driver_of: MakeDriver
) -> None:
    node = node_of(4)
    driver = driver_of(node, slow_seconds=0.01)
    driver.look()
    node.scenario.slow("nvmlDeviceGetTemperature", seconds=0.02)
    node.scenario.fail("nvmlDeviceGetUUID", fakenvml.UNKNOWN, gpu=1)
    for _ in range(6):
        view = driver.look()
        assert [g.uuid for g in view.gpus] == [fakenvml.uuid(n) for n in range(4)]
        assert all(g.state.known for g in view.gpus if g.index != 1)
