"""An admin acknowledges that a failure of a GPU is over."""

import itertools
import re

import pytest
from device_agent.contract.times import since_text
from device_agent.nvml.xids import ROWS
from device_agent.report.inventory import MAX_TEXT
from unit.health import news
from unit.health.gpus import RULES, Gpus, gpu, mig


def test_an_acknowledgement_of_the_failure_lets_the_gpu_recover():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.xid(news.RESET_XID, "GPU-1")
    assert gpus.acknowledge("GPU-0") == ("GPU-0",)
    assert gpus.seen() == {"GPU-0": False, "GPU-1": False}
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True, "GPU-1": False}


def test_an_acknowledgement_does_not_heal_a_gpu_with_a_bad_state():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.acknowledge("GPU-0")
    gpus.looks(10, GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": False}


def test_an_acknowledgement_does_not_end_a_later_failure():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    first = gpus.device("GPU-0").since
    gpus.acknowledge("GPU-0")
    gpus.looks(3)
    gpus.xid(news.RESET_XID)
    assert gpus.acknowledge("GPU-0", first) == ()
    gpus.looks(10)
    assert gpus.seen() == {"GPU-0": False}


@pytest.mark.parametrize("bad", [True, False])
@pytest.mark.parametrize("later", [news.RESET_XID, 95])
def test_an_acknowledgement_read_repeatedly_does_not_end_a_later_failure(later, bad):
    """The annotation stays, the agent reads it every 15 seconds, and the GPU was never Healthy in between."""
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    first = gpus.device("GPU-0").since
    assert gpus.acknowledge("GPU-0", first) == ("GPU-0",)
    if bad:
        gpus.looks(5, GPU_0=news.BAD)
    gpus.xid(later)
    assert gpus.acknowledge("GPU-0", first) == ()
    gpus.looks(10)
    assert gpus.seen() == {"GPU-0": False}
    assert gpus.acknowledge("GPU-0") == ("GPU-0",), "as the inventory tells it now"
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_a_failure_is_acknowledged_while_the_gpu_is_not_listed():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.xid(news.RESET_XID)
    since = gpus.device("GPU-0").since
    gpus.list()
    gpus.scan(gpu(1))
    gpus.seen()
    gpus.now += RULES.removal_grace_seconds
    gpus.scan(gpu(1))
    gpus.list()
    assert gpus.seen() == {"GPU-1": True}
    assert gpus.acknowledge("GPU-0", since) == ("GPU-0",)


def test_a_failure_on_top_of_a_bad_state_has_its_own_time():
    gpus = Gpus(gpu(0))
    gpus.look(GPU_0=news.BAD)
    gpus.xid(news.RESET_XID)
    device = gpus.device("GPU-0")
    assert (device.reason, device.since) == ("Xid79", gpus.wall)


@pytest.mark.parametrize("text", ["", "GPU-0", "GPU-0=", "=2026-01-01T00:00:00Z", ",,", "GPU-9=2026-01-01T00:00:13Z"])
def test_a_text_that_names_no_failure_changes_nothing(text):
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    changed, replies = gpus.table.acknowledge(text, now=gpus.now, wall=gpus.wall)
    assert (changed, [r for r in replies if r.parts]) == (frozenset(), [])


def test_a_failure_of_a_gpu_may_be_acknowledged_by_its_uuid_or_by_a_partition():
    for name in ("GPU-0", "MIG-0-2-0"):
        gpus = Gpus(mig(0, gi=1), mig(0, gi=2))
        gpus.look()
        gpus.xid(news.RESET_XID)
        assert gpus.acknowledge(name, of="MIG-0-1-0") == ("GPU-0",)
        gpus.looks(3)
        assert gpus.seen() == {"MIG-0-1-0": True, "MIG-0-2-0": True}


# Several failures of one GPU


def test_all_open_failures_are_named_with_the_time_of_the_newest():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    first = gpus.device("GPU-0").since
    gpus.now += 5
    gpus.xid(48)
    device = gpus.device("GPU-0")
    assert (device.reason, device.since) == ("Xid79", gpus.wall)
    assert device.message.startswith("XID 79: the GPU has fallen off the PCIe bus; ")
    assert f"; also XID 48 (a memory error that ECC could not correct) since {since_text(gpus.wall)}" in device.message
    assert device.since > first


def test_an_acknowledgement_ends_no_failure_that_began_after_its_moment():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    first = gpus.device("GPU-0").since
    gpus.now += 5
    gpus.xid(48)
    second = gpus.device("GPU-0").since
    assert gpus.acknowledge("GPU-0", first) == ("GPU-0",)
    gpus.looks(10)
    device = gpus.device("GPU-0")
    assert (device.reason, device.since, gpus.seen()) == ("Xid48", second, {"GPU-0": False})
    assert "XID 79" not in device.message


def test_acknowledging_the_newest_failure_ends_all_named_with_it():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.now += 5
    gpus.xid(48)
    assert gpus.acknowledge("GPU-0") == ("GPU-0",)
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True}


def test_acknowledging_a_bad_state_does_not_end_a_later_failure():
    gpus = Gpus(gpu(0))
    gpus.look(GPU_0=news.ASKS)
    began = gpus.device("GPU-0").since
    gpus.now += 11
    gpus.xid(news.RESET_XID)
    assert gpus.acknowledge("GPU-0", began) == ()
    gpus.looks(10)
    assert gpus.seen() == {"GPU-0": False}


def test_failures_in_one_second_get_different_times():
    """Times are shown in whole seconds, and errors come in bursts. One time must not mean two failures."""
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    first = gpus.device("GPU-0").since
    gpus.now -= 0.9
    gpus.xid(48)
    assert gpus.acknowledge("GPU-0", first) == ("GPU-0",)
    assert gpus.device("GPU-0").reason == "Xid48"


def test_a_failure_after_the_clock_went_back_is_not_acknowledged():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.now += 1000
    gpus.xid(news.RESET_XID)
    first = gpus.device("GPU-0").since
    gpus.acknowledge("GPU-0", first)
    gpus.now -= 500
    gpus.xid(48)
    assert gpus.device("GPU-0").since > first
    assert gpus.acknowledge("GPU-0", first) == ()


def test_a_partition_names_the_failures_of_its_gpu_too():
    gpus = Gpus(mig(0, gi=1), mig(0, gi=2))
    gpus.look()
    gpus.xid(48, "GPU-0/1/0")
    gpus.now += 5
    gpus.xid(news.RESET_XID)
    one, two = gpus.device("MIG-0-1-0"), gpus.device("MIG-0-2-0")
    assert "XID 48" in one.message
    assert "XID 79" in one.message
    assert "XID 48" not in two.message
    assert one.since == two.since == gpus.wall
    assert gpus.acknowledge("MIG-0-2-0") == ("GPU-0",)
    assert gpus.device("MIG-0-1-0").reason == "Xid48", "of which the other tells nothing"
    assert gpus.acknowledge("MIG-0-1-0") == ("GPU-0/1/0",)
    gpus.looks(3)
    assert gpus.seen() == {"MIG-0-1-0": True, "MIG-0-2-0": True}


def test_any_number_of_failures_fits_into_the_inventorys_message():
    for first in ROWS:
        gpus = Gpus(gpu(0))
        gpus.look()
        for row in (first, *ROWS):
            gpus.xid(row.xid)
        message = gpus.device("GPU-0").message
        assert len(message) <= MAX_TEXT
        told = {int(number) for number in re.findall(r"\b\d+\b", message)}
        assert {row.xid for row in ROWS} <= told
    long = [row.xid for row in sorted(ROWS, key=lambda row: len(row.meaning + row.advice))[-3:]]
    for order in itertools.permutations(long):
        gpus = Gpus(gpu(0))
        for xid in order:
            gpus.xid(xid)
        message = gpus.device("GPU-0").message
        assert len(message) <= MAX_TEXT
        assert all(f"XID {xid}" in message for xid in order)
    gpus = Gpus(gpu(0, problem=("CompanionMissing", "x" * 4000)))
    gpus.xid(news.RESET_XID)
    device = gpus.device("GPU-0")
    assert (device.reason, device.since, len(device.message)) == ("CompanionMissing", gpus.wall, MAX_TEXT)
    assert "…; also XID 79 (" in device.message


def test_the_message_of_a_failure_that_needs_a_reset_has_the_advice():
    gpus = Gpus(gpu(0))
    gpus.xid(news.RESET_XID)
    assert "an acknowledgement (docs/health.md)" in gpus.device("GPU-0").message
