"""GPUs in the device table: which devices become unhealthy, with which reason, and when they recover."""

from dataclasses import replace

from device_agent.contract.document import Clears, Document, Ownership, XidRule
from device_agent.table.snapshot import Health
from unit.health import news
from unit.health.gpus import RULES, Gpus, gpu, gpu_resource, mig, new_table
from unit.table.samples import NAME, OTHER, held, wall


def test_a_fatal_xid_takes_all_replicas_of_its_gpu_and_no_other_device():
    gpus = Gpus(gpu(0, replicas=3), gpu(1, replicas=3))
    gpus.look()
    assert gpus.xid(news.RESET_XID) == {NAME}
    assert gpus.seen() == {
        "GPU-0": False, "GPU-0::1": False, "GPU-0::2": False, "GPU-1": True, "GPU-1::1": True, "GPU-1::2": True,
    }  # fmt: skip
    state = gpus.device("GPU-0")
    assert (state.health, state.reason, state.since) == (Health.UNHEALTHY, "Xid79", wall(gpus.now))
    assert "fallen off the PCIe bus" in state.message
    assert "reboot the node" in state.message


def test_an_xid_before_the_first_look_counts():
    gpus = Gpus(gpu(0))
    gpus.xid(news.RESET_XID)
    gpus.look(GPU_0=news.GOOD)
    assert gpus.seen() == {"GPU-0": False}


def test_an_xid_of_a_program_changes_nothing():
    gpus = Gpus(gpu(0))
    gpus.look()
    assert gpus.xid(news.HARMLESS_XID) == frozenset()
    assert gpus.seen() == {"GPU-0": True}


def test_a_gpu_recovers_when_the_driver_no_longer_asks_for_a_reset():
    gpus = Gpus(gpu(0))
    gpus.look(others=news.NONE)
    gpus.xid(news.RESET_XID)
    gpus.looks(20, GPU_0=news.NONE)
    assert gpus.seen() == {"GPU-0": False}
    gpus.look(GPU_0=news.ASKS)
    gpus.look(GPU_0=news.NONE)
    assert gpus.device("GPU-0").reason == "Recovering"
    assert "Healthy after 3 good checks in a row; it was Xid79" in gpus.device("GPU-0").message
    gpus.look(GPU_0=news.NONE)
    assert gpus.seen() == {"GPU-0": False}
    assert gpus.look(GPU_0=news.NONE) == {NAME}
    state = gpus.device("GPU-0")
    assert (state.health, state.reason, state.message, state.since) == (Health.HEALTHY, "", "", wall(gpus.now))


def test_a_gpu_recovers_after_a_driver_reload():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.looks(5)
    gpus.reload()
    gpus.looks(2)
    assert gpus.seen() == {"GPU-0": False}
    gpus.look()
    assert gpus.seen() == {"GPU-0": True}


def test_the_first_look_at_a_new_driver_does_not_end_its_failures():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.reload()
    gpus.xid(news.RESET_XID)
    gpus.looks(5)
    assert gpus.seen() == {"GPU-0": False}


def test_a_driver_that_was_unloaded_for_a_while_was_reloaded():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.hang("the driver is not loaded")
    gpus.reload()
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_a_quiet_failure_ends_by_itself_unless_it_comes_again():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.QUIET_XID)
    gpus.looks(2)
    gpus.xid(news.QUIET_XID)
    gpus.looks(2)
    assert gpus.device("GPU-0").reason == "Recovering"
    gpus.look()
    assert gpus.seen() == {"GPU-0": True}


def test_a_quiet_failure_waits_for_the_polled_state():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.QUIET_XID)
    gpus.looks(10, GPU_0=news.ASKS)
    assert (gpus.seen(), gpus.device("GPU-0").reason) == ({"GPU-0": False}, "Xid74")
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_polled_failures_take_as_many_looks_as_the_threshold_says():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.looks(2, GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": True, "GPU-1": True}
    assert gpus.device("GPU-0").message == "a row could not be remapped; Unhealthy after 3 such checks in a row"
    gpus.look(GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": False, "GPU-1": True}
    assert gpus.device("GPU-0").reason == "RowRemapFailed"


def test_looks_faster_than_the_interval_are_one():
    gpus = Gpus(gpu(0))
    gpus.look()
    for _ in range(30):
        gpus.look(after=0.5, GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": True}  # 15 s: two of them count


def test_a_gpu_that_is_bad_at_first_sight_is_not_offered():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look(GPU_1=news.BAD)
    assert gpus.seen() == {"GPU-0": True, "GPU-1": False}


def test_a_lost_gpu_is_unhealthy_at_once():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    assert gpus.look(after=0.1, GPU_1=news.LOST) == {NAME}
    assert gpus.seen() == {"GPU-0": True, "GPU-1": False}


def test_without_answers_no_state_changes_and_the_message_says_so():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(news.RESET_XID, "GPU-1")
    since = wall(gpus.now + 10)
    for _ in range(10):
        assert gpus.hang() == frozenset()
    good, bad = gpus.device("GPU-0"), gpus.device("GPU-1")
    assert (good.health, good.reason, good.unanswered, good.message, good.since) == (
        Health.HEALTHY,
        "NoAnswer",
        "NVML hangs",
        "NVML hangs",
        since,
    )
    assert (bad.health, bad.reason) == (Health.UNHEALTHY, "Xid79")
    assert bad.message.endswith("; now NVML hangs")
    gpus.look()
    again = gpus.device("GPU-0")
    assert (again.reason, again.unanswered, again.message) == ("", "", "")


def test_one_gpu_without_an_answer_does_not_affect_the_others():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.look(GPU_0=news.UNKNOWN)
    assert (gpus.device("GPU-0").unanswered, gpus.device("GPU-1").unanswered) == ("GPU-0 does not answer", "")


def test_an_unknown_check_between_bad_ones_does_not_count():
    gpus = Gpus(gpu(0))
    gpus.look()
    for check in (news.BAD, news.UNKNOWN, news.BAD, news.UNKNOWN):
        gpus.look(GPU_0=check)
    assert gpus.seen() == {"GPU-0": True}
    gpus.look(GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": False}


# Partitions


def test_an_event_of_a_mig_device_concerns_it_alone():
    gpus = Gpus(mig(0, gi=1), mig(0, gi=2), mig(1, gi=1))
    gpus.look()
    gpus.xid(news.RESET_XID, "GPU-0/1/0")
    assert gpus.seen() == {"MIG-0-1-0": False, "MIG-0-2-0": True, "MIG-1-1-0": True}


def test_an_event_of_a_gpu_instance_concerns_all_compute_instances_of_it():
    gpus = Gpus(mig(0, gi=1, ci=0), mig(0, gi=1, ci=1), mig(0, gi=2))
    gpus.look()
    gpus.xid(news.RESET_XID, "GPU-0/1")
    assert gpus.seen() == {"MIG-0-1-0": False, "MIG-0-1-1": False, "MIG-0-2-0": True}


def test_a_failure_of_the_gpu_concerns_all_its_mig_devices_under_every_name():
    resources = (gpu_resource(), gpu_resource(OTHER))
    gpus = Gpus(mig(0, gi=1), mig(0, gi=2, name=OTHER), mig(1, gi=1), resources=resources)
    gpus.look()
    assert gpus.xid(news.RESET_XID) == {NAME, OTHER}
    assert gpus.seen() == {"MIG-0-1-0": False, "MIG-1-1-0": True}
    assert gpus.seen(OTHER) == {"MIG-0-2-0": False}


def test_a_mig_device_made_on_a_broken_gpu_is_not_offered():
    gpus = Gpus(mig(0, gi=1), mig(1, gi=1))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.units = (mig(0, gi=5), mig(1, gi=1))
    gpus.scan()
    assert gpus.seen()["MIG-0-5-0"] is False


def test_a_mig_device_recovers_with_its_gpus_looks():
    gpus = Gpus(mig(0, gi=1), mig(0, gi=2))
    gpus.look()
    gpus.xid(news.QUIET_XID, "GPU-0/1/0")
    gpus.looks(3)
    assert gpus.seen() == {"MIG-0-1-0": True, "MIG-0-2-0": True}


# What a resource's rules say


def test_each_resource_judges_by_its_own_rules():
    observer = gpu_resource(OTHER, ownership=Ownership.NONE, health=replace(RULES, ignore_xids=(news.RESET_XID,)))
    seen = gpu(0, name=OTHER)
    gpus = Gpus(gpu(0), replace(seen, id="seen"), resources=(gpu_resource(), observer))
    gpus.look()
    assert gpus.xid(news.RESET_XID) == {NAME}
    assert (gpus.seen(), gpus.seen(OTHER)) == ({"GPU-0": False}, {"seen": True})


def test_an_edit_that_ignores_an_xid_lets_the_gpu_recover():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.edit(gpu_resource(health=replace(RULES, ignore_xids=(news.RESET_XID,))), units=(gpu(0),))
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_an_edit_that_makes_an_xid_quiet_lets_the_gpu_recover():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.edit(gpu_resource(health=replace(RULES, xids=(XidRule(news.RESET_XID, Clears.QUIET),))), units=(gpu(0),))
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_a_broken_gpu_is_not_offered_under_another_name():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    since = gpus.device("GPU-0").since
    gpus.list()
    gpus.edit(gpu_resource(OTHER), units=(gpu(0, name=OTHER),))
    gpus.list()
    gpus.looks(5)
    assert gpus.seen(OTHER) == {"GPU-0": False}
    assert gpus.device("GPU-0").since == since


def test_a_resource_that_comes_back_still_knows_its_broken_gpu():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.list()
    gpus.edit(units=())
    gpus.list()
    gpus.looks(5)
    gpus.edit(gpu_resource(), units=(gpu(0),))
    gpus.looks(5)
    assert gpus.seen() == {"GPU-0": False}


def test_a_resource_that_comes_back_after_a_reset_finds_its_gpu_well():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.edit(gpu_resource(), units=(gpu(1),))
    gpus.reload()
    gpus.units = (gpu(0), gpu(1))
    gpus.looks(3)
    gpus.scan()
    assert gpus.seen()["GPU-0"] is True


def test_a_gpu_that_vanished_was_dropped_and_returned_is_still_broken():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.list()
    gpus.units = (gpu(1),)
    gpus.scan()
    gpus.seen()
    gpus.now += RULES.removal_grace_seconds
    gpus.scan()
    gpus.list()
    assert gpus.seen() == {"GPU-1": True}
    gpus.units = (gpu(0), gpu(1))
    gpus.scan()
    gpus.looks(5)
    assert gpus.seen() == {"GPU-0": False, "GPU-1": True}


def test_a_storm_of_one_error_is_one_change():
    """Programs and broken GPUs can announce hundreds of errors a second, and each change costs work in many places."""
    gpus = Gpus(gpu(0, replicas=4), gpu(1))
    gpus.look()
    assert gpus.xid(news.RESET_XID)
    before = gpus.table.health_revision
    for _ in range(5):
        assert not gpus.xid(news.RESET_XID)
    assert gpus.table.health_revision == before
    assert gpus.xid(news.RESET_XID, "GPU-1")


def test_a_held_gpu_that_fails_stays_listed_and_is_given_to_nobody_else():
    gpus = Gpus(gpu(0, replicas=2))
    gpus.look()
    gpus.list(held("GPU-0"))
    gpus.xid(news.RESET_XID)
    assert gpus.seen() == {"GPU-0": False, "GPU-0::1": False}
    assert gpus.device("GPU-0").holders["GPU-0"][0].pod == "pod-GPU-0"


def test_news_before_the_first_configuration_counts():
    """The driver is asked and listened to before the first scan is judged."""
    gpus = Gpus(gpu(0), gpu(1), gpu(2))
    fresh = Gpus(*gpus.units)
    fresh.table = new_table()
    fresh.look(GPU_1=news.BAD)
    fresh.xid(news.RESET_XID, "GPU-2")
    fresh.table.configure(Document(gpus.resources))
    fresh.scan()
    assert fresh.seen() == {"GPU-0": True, "GPU-1": False, "GPU-2": False}


def test_a_new_resource_is_judged_by_the_last_look():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look(GPU_1=news.BAD)
    gpus.edit(gpu_resource(OTHER), units=(gpu(0, name=OTHER), gpu(1, name=OTHER)))
    gpus.list()
    gpus.scan()
    assert gpus.seen(OTHER) == {"GPU-0": True, "GPU-1": False}


def test_a_gpu_that_broke_since_the_kubelet_heard_is_not_preferred():
    gpus = Gpus(gpu(0), gpu(1), gpu(2))
    gpus.look()
    free = ("GPU-0", "GPU-1", "GPU-2")
    assert gpus.table.offered(NAME, free, at_least=1) == free
    gpus.xid(news.RESET_XID)
    assert list(gpus.table.offered(NAME, free, at_least=2)) == ["GPU-1", "GPU-2"]
    assert gpus.table.offered(NAME, free, at_least=3) == free
    assert gpus.table.offered("example.com/none", free, at_least=1) == free


def test_an_xid_counts_while_a_held_id_of_a_resource_that_left_is_listed():
    """Nobody has found the device of that id, and no entry has rules for it."""
    gpus = Gpus(gpu(0), resources=(gpu_resource(), gpu_resource("example.com/a")))
    gpus.list(held("GPU-9", name="example.com/a"))
    gpus.edit(gpu_resource(), units=(gpu(0),))
    gpus.look()
    assert gpus.xid(news.RESET_XID) == {NAME}
    assert gpus.seen() == {"GPU-0": False}
    assert gpus.device("GPU-9").withheld == "Draining"
