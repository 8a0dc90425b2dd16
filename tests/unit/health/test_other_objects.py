"""What other objects' agents knew of the node's GPUs: a broken one is broken, whichever object offers it."""

import itertools

import pytest
from device_agent.contract.document import Document
from device_agent.health.memory import HEALTH, lasting
from device_agent.health.watchlist import Record
from hypothesis import example, given, settings
from unit.health import news
from unit.health.gpus import Gpus, gpu, gpu_resource, mig, new_table, open_failures
from unit.health.test_health_sequences import UNITS, apply, moments
from unit.table.samples import NAME, OTHER


def failed(*xids: int, part: str = "GPU-0") -> Gpus:
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    for xid in xids or (news.RESET_XID,):
        gpus.xid(xid, part)
    return gpus


def memory(gpus: Gpus) -> tuple[Record, ...]:
    raw = HEALTH.dump(lasting(gpus.table.health_records()), boot_id="b")
    return HEALTH.parse(raw, boot_id="b", theirs=True)


def successor(*others: Gpus, own: Gpus | None = None, name: str = NAME, **resource) -> Gpus:
    """The agent of an object that starts on the node when these have run; `own`: what its own file has."""
    gpus = Gpus(gpu(0, name=name), gpu(1, name=name), resources=(gpu_resource(name, **resource),))
    gpus.now = max(g.now for g in (gpus, *others, *([own] if own else ())))
    gpus.table = new_table()
    gpus.table.restore_health(lasting(own.table.health_records()) if own else ())
    gpus.inherit(*(record for other in others for record in memory(other)))
    gpus.table.configure(Document(gpus.resources))
    gpus.scan()
    return gpus


@pytest.mark.parametrize("name", [NAME, OTHER])
def test_a_gpu_that_broke_under_another_object_is_broken(name):
    first = failed()
    gpus = successor(first, name=name)
    assert gpus.seen(name) == {"GPU-0": False, "GPU-1": True}
    gpus.looks(10)
    device = gpus.device("GPU-0")
    assert (device.reason, device.since) == ("Xid79", first.device("GPU-0").since)
    assert gpus.seen(name) == {"GPU-0": False, "GPU-1": True}


def test_a_failure_from_another_object_clears_by_the_same_rules():
    first = failed()
    gpus = successor(first)
    gpus.reload()
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True, "GPU-1": True}
    gpus = successor(first)
    assert gpus.acknowledge("GPU-0") == ("GPU-0",)
    gpus.looks(3)
    assert gpus.seen() == {"GPU-0": True, "GPU-1": True}


def test_the_rules_are_those_of_the_object_that_offers_it():
    rules = gpu_resource().health
    ignoring = type(rules)(ignore_xids=(news.RESET_XID,))
    assert successor(failed(), health=ignoring).seen() == {"GPU-0": True, "GPU-1": True}


def test_a_failure_of_a_partition_stays_with_the_partition():
    first = Gpus(mig(2, gi=1), mig(2, gi=2))
    first.xid(news.RESET_XID, "GPU-2/1/0")
    gpus = Gpus(*first.units)
    gpus.table = new_table()
    gpus.inherit(*memory(first))
    gpus.table.configure(Document(gpus.resources))
    gpus.scan()
    assert gpus.seen() == {"MIG-2-1-0": False, "MIG-2-2-0": True}


def test_a_failure_that_one_object_saw_end_is_over_for_later_objects():
    """The first object's file is never written again, and says that the GPU is broken until the next boot."""
    first = failed()
    second = successor(first)
    second.acknowledge("GPU-0")
    for third in (successor(first, second), successor(second, first)):
        assert third.seen() == {"GPU-0": True, "GPU-1": True}
    second.looks(3)
    second.xid(48)
    third = successor(first, second)
    assert (third.device("GPU-0").reason, "XID 79" in third.device("GPU-0").message) == ("Xid48", False)


def test_a_failure_that_is_over_in_the_own_file_stays_over():
    first = failed()
    own = failed()
    own.now += 0.3
    own.acknowledge("GPU-0")
    own.looks(3)
    assert successor(first, own=own).seen() == {"GPU-0": True, "GPU-1": True}
    first.now += 1000
    first.xid(48)
    assert successor(first, own=own).device("GPU-0").reason == "Xid48", "while no agent of ours was there"


def test_a_failure_that_is_open_in_the_own_file_stays_as_it_is():
    first, own = failed(), failed()
    own.now += 5
    own.xid(48)
    gpus = successor(first, own=own)
    assert gpus.device("GPU-0") == own.device("GPU-0")


@pytest.mark.parametrize("edited", [(gpu_resource(), gpu_resource(OTHER)), (gpu_resource(OTHER),)])
def test_a_failure_acknowledged_meanwhile_does_not_come_back_with_a_resource_that_is_added_or_renamed(edited):
    gpus = successor(failed())
    gpus.acknowledge("GPU-0")
    gpus.looks(3)
    gpus.list()
    gpus.edit(*edited, units=(gpu(0, name=OTHER), gpu(1, name=OTHER)))
    gpus.seen()
    gpus.list()
    gpus.list()
    assert gpus.seen(OTHER) == {"GPU-0": True, "GPU-1": True}


def test_a_file_that_is_read_late_counts_when_it_is_read():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.inherit(*memory(failed()))
    assert gpus.seen() == {"GPU-0": False, "GPU-1": True}


@settings(deadline=None, max_examples=200)
@given(moments)
@example([("xid", ("GPU-0", "reset")), ("acknowledge", 0), ("xid", ("GPU-0", "quiet"))])
def test_an_object_created_again_knows_all_earlier_failures(sequence):
    gpus = Gpus(*UNITS)
    for moment in sequence:
        apply(gpus, moment)
    after = Gpus(*UNITS)
    after.table = new_table()
    after.inherit(*memory(gpus))
    after.table.configure(Document(after.resources))
    after.scan()
    assert open_failures(after) == open_failures(gpus)


def test_the_order_of_the_files_does_not_matter():
    first, second, third = failed(), failed(48), failed(95, part="GPU-1")
    first.acknowledge("GPU-0")
    told = set()
    for order in itertools.permutations((first, second, third)):
        gpus = successor(*order)
        told.add(tuple((gpus.device(d).reason, gpus.device(d).since) for d in ("GPU-0", "GPU-1")))
    assert len(told) == 1
