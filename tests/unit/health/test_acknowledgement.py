"""An admin's word that a failure of a GPU is over."""

import pytest
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


def test_an_acknowledgement_does_not_make_a_gpu_healthy_whose_state_is_bad():
    gpus = Gpus(gpu(0))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.acknowledge("GPU-0")
    gpus.looks(10, GPU_0=news.BAD)
    assert gpus.seen() == {"GPU-0": False}


def test_an_acknowledgement_is_of_one_failure_and_of_no_later_one():
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
def test_an_acknowledgement_that_is_read_again_and_again_ends_no_failure_that_came_after_it(later, bad):
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


def test_a_failure_that_finds_the_state_bad_is_acknowledged_alone():
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
    assert gpus.table.acknowledge(text, now=gpus.now, wall=gpus.wall) == (frozenset(), ())


def test_a_failure_of_a_gpu_may_be_acknowledged_by_its_uuid_or_by_a_partition():
    for name in ("GPU-0", "MIG-0-2-0"):
        gpus = Gpus(mig(0, gi=1), mig(0, gi=2))
        gpus.look()
        gpus.xid(news.RESET_XID)
        assert gpus.acknowledge(name, of="MIG-0-1-0") == ("GPU-0",)
        gpus.looks(3)
        assert gpus.seen() == {"MIG-0-1-0": True, "MIG-0-2-0": True}
