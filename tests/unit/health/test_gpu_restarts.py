"""The health of GPUs after a restart of the agent, a reload of the driver, or a reboot of the node."""

from dataclasses import replace

import pytest
from device_agent.contract.document import HealthRules, XidRule
from device_agent.health.news import DriverLoad
from unit.health import news
from unit.health.gpus import RULES, Gpus, gpu, gpu_resource


@pytest.mark.parametrize("xid", [news.RESET_XID, news.QUIET_XID])
def test_state_cause_and_since_survive_a_restart(xid):
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(xid)
    before = gpus.device("GPU-0")
    gpus.restart()
    after = gpus.device("GPU-0")
    assert (after.health, after.reason, after.message, after.since) == (
        before.health, before.reason, before.message, before.since,
    )  # fmt: skip
    assert gpus.seen() == {"GPU-0": False, "GPU-1": True}


def test_a_recovery_goes_on_where_it_was_after_a_restart():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.QUIET_XID)
    gpus.looks(2)
    gpus.restart()
    assert gpus.device("GPU-0").reason == "Recovering"
    gpus.look()
    assert gpus.seen() == {"GPU-0": True}


def test_a_healthy_gpu_needs_the_threshold_after_a_restart_too():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.restart()
    gpus.looks(2, GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": True}


def test_a_restart_of_the_agent_is_no_reload_of_the_driver():
    gpus = Gpus(gpu(0), load=DriverLoad("", 5))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.restart()
    gpus.looks(5)
    assert gpus.seen() == {"GPU-0": False}
    gpus.load = DriverLoad("", 2)
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_a_driver_reloaded_while_no_agent_ran_is_noticed():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.reload()
    gpus.restart()
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_an_action_asked_for_before_the_restart_and_not_after_it_is_a_reset():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.look(GPU_0=news.ASKS)
    gpus.restart()
    gpus.looks(3, GPU_0=news.NONE)
    assert gpus.seen() == {"GPU-0": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RULES, replace(RULES, ignore_xids=(news.RESET_XID,))),
        (HealthRules(xids=(XidRule(94),)), HealthRules()),
    ],
)
def test_an_xid_that_is_ignored_since_an_edit_that_restarted_the_agent_is_no_failure(before, after):
    gpus = Gpus(gpu(0), resources=(gpu_resource(health=before),))
    gpus.look()
    gpus.xid(94 if before.xids else news.RESET_XID)
    assert gpus.seen() == {"GPU-0": False}
    gpus.resources = (gpu_resource(health=after),)
    gpus.restart()
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_a_reboot_is_a_fresh_start():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.restart(read_at="boot-2")
    gpus.look()
    assert gpus.seen() == {"GPU-0": True}


def test_a_gpu_that_is_still_broken_after_a_reboot_is_found_by_the_first_look():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.restart(read_at="boot-2")
    gpus.look(GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": False}
