"""What other objects' agents knew of the node's GPUs: a broken one is broken, whichever object offers it."""

import itertools
import os
from pathlib import Path

import pytest
from device_agent.contract.document import Document
from device_agent.health.watchlist import Kind, Record
from device_agent.nvml import xids
from device_agent.store import health_memory as healthmemory
from device_agent.store.node_state import NodeState
from hypothesis import example, given, settings
from unit.health import news
from unit.health.gpus import Gpus, gpu, gpu_resource, mig, new_table, open_failures
from unit.health.test_health_sequences import UNITS, apply, moments
from unit.table.samples import NAME, OTHER

FIRST, SECOND, THIRD = (f"0b7e6a3c-1111-4222-8333-44445555666{n}" for n in range(3))


def failed(*xids: int, part: str = "GPU-0") -> Gpus:
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    for xid in xids or (news.RESET_XID,):
        gpus.xid(xid, part)
    return gpus


def memory(gpus: Gpus) -> tuple[Record, ...]:
    return healthmemory.parse(healthmemory.dump(gpus.table.health_records(), boot_id="b"), boot_id="b")


def successor(*others: Gpus, own: Gpus | None = None, name: str = NAME, **resource) -> Gpus:
    """The agent of an object that starts on the node when these have run; `own`: what its own file has."""
    gpus = Gpus(gpu(0, name=name), gpu(1, name=name), resources=(gpu_resource(name, **resource),))
    gpus.now = max(g.now for g in (gpus, *others, *([own] if own else ())))
    gpus.table = new_table()
    gpus.table.restore_health(memory(own) if own else ())
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


def test_it_recovers_by_the_same_things():
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


def test_what_an_object_has_seen_end_is_over_for_all_that_come_after_it():
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


def test_what_its_own_file_says_is_over_stays_over():
    first = failed()
    own = failed()
    own.now += 0.3
    own.acknowledge("GPU-0")
    own.looks(3)
    assert successor(first, own=own).seen() == {"GPU-0": True, "GPU-1": True}
    first.now += 1000
    first.xid(48)
    assert successor(first, own=own).device("GPU-0").reason == "Xid48", "while no agent of ours was there"


def test_what_is_open_in_its_own_file_is_as_there():
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


def test_what_was_not_read_in_time_counts_when_it_is_read():
    gpus = Gpus(gpu(0), gpu(1))
    gpus.look()
    gpus.inherit(*memory(failed()))
    assert gpus.seen() == {"GPU-0": False, "GPU-1": True}


@settings(deadline=None, max_examples=200)
@given(moments)
@example([("xid", ("GPU-0", "reset")), ("acknowledge", 0), ("xid", ("GPU-0", "quiet"))])
def test_an_object_that_is_made_anew_knows_every_failure_of_the_one_before(sequence):
    gpus = Gpus(*UNITS)
    for moment in sequence:
        apply(gpus, moment)
    after = Gpus(*UNITS)
    after.table = new_table()
    after.inherit(*memory(gpus))
    after.table.configure(Document(after.resources))
    after.scan()
    assert open_failures(after) == open_failures(gpus)


# The files


def kept(directory: Path, uid: str) -> Path:
    return directory / "device-operator" / "health" / f"{uid}.json"


def test_others_files_of_this_boot_are_read_for_their_physical_parts(tmp_path: Path):
    states = [NodeState(tmp_path, object_uid=uid) for uid in (FIRST, SECOND, THIRD)]
    assert states[0].recall_others(boot_id="b") == ((), "")
    first = failed()
    first.units = ()
    first.scan()  # GPU-1 is missing now, which is a word of a scan
    states[0].remember_health(first.table.health_records(), boot_id="b")
    states[1].remember_health(failed(48).table.health_records(), boot_id="another")
    records, problem = states[2].recall_others(boot_id="b")
    assert problem == ""
    assert {(r.kind, r.name) for r in records} == {(Kind.PART, "GPU-0"), (Kind.PART, "GPU-1")}
    assert [f.code for r in records for f in r.condition.failures] == [xids.code(news.RESET_XID)]
    assert states[0].recall_others(boot_id="b") == ((), "")


def test_a_file_of_another_object_that_is_of_no_use_is_named_and_passed_over(tmp_path: Path):
    own, first, second = (NodeState(tmp_path, object_uid=uid) for uid in (FIRST, SECOND, THIRD))
    first.remember_health(failed().table.health_records(), boot_id="b")
    second.remember_health((), boot_id="b")
    kept(tmp_path, THIRD).write_bytes(b"{")
    (kept(tmp_path, THIRD).parent / f".{SECOND}.json.tmp").write_bytes(b"{")
    records, problem = own.recall_others(boot_id="b")
    assert len(records) == 2
    assert problem.startswith(f"what the agent of object {THIRD} kept of the devices' health cannot be used: ")
    kept(tmp_path, THIRD).unlink()
    kept(tmp_path, THIRD).mkdir()
    assert "cannot be read" in own.recall_others(boot_id="b")[1]
    kept(tmp_path, THIRD).rmdir()
    kept(tmp_path, THIRD).touch()
    os.truncate(kept(tmp_path, THIRD), 33 * 1024 * 1024)
    records, problem = own.recall_others(boot_id="b")
    assert (len(records), "longer than" in problem) == (2, True)


def test_a_file_that_goes_while_it_is_looked_at_hides_no_other(tmp_path: Path):
    NodeState(tmp_path, object_uid=FIRST).remember_health(failed().table.health_records(), boot_id="b")
    kept(tmp_path, SECOND).symlink_to("gone")
    records, problem = NodeState(tmp_path, object_uid=THIRD).recall_others(boot_id="b")
    assert (len(records), problem) == (2, "")


def test_the_newest_files_are_read_when_there_are_too_many(tmp_path: Path):
    for number in range(300):
        state = NodeState(tmp_path, object_uid=f"uid-{number}")
        state.remember_health(failed().table.health_records() if number == 250 else (), boot_id="b")
        os.utime(kept(tmp_path, f"uid-{number}"), (number, number))
    records, problem = NodeState(tmp_path, object_uid="own").recall_others(boot_id="b")
    assert len(records) == 2
    assert problem == "there are more than 256 other objects' files of health: the oldest are not read"


def test_whatever_order_files_are_read_in_the_same_holds():
    first, second, third = failed(), failed(48), failed(95, part="GPU-1")
    first.acknowledge("GPU-0")
    told = set()
    for order in itertools.permutations((first, second, third)):
        gpus = successor(*order)
        told.add(tuple((gpus.device(d).reason, gpus.device(d).since) for d in ("GPU-0", "GPU-1")))
    assert len(told) == 1
