"""News of a driver library reach the table and the listeners."""

from device_agent.discovery.driver_news import DriverNews
from device_agent.health.news import Answer, Check, Look
from unit.health.gpus import Gpus, gpu, xid_fault
from unit.health.news import HARMLESS_XID, RESET_XID
from unit.table.samples import NAME


def test_faults_that_matter_to_no_entry_cause_no_call() -> None:
    gpus, told = Gpus(gpu(0), gpu(1)), list[frozenset[str]]()
    news = DriverNews(gpus.table, changed=told.append, found=lambda: None)
    news.fault(xid_fault(HARMLESS_XID))
    assert told == []
    news.fault(xid_fault(RESET_XID))
    assert told == [{NAME}]
    news.fault(xid_fault(RESET_XID))
    assert told == [{NAME}], "it is known"


def test_each_look_is_passed_on_and_its_links_are_used() -> None:
    gpus, told = Gpus(gpu(0), gpu(1)), list[frozenset[str]]()
    news = DriverNews(gpus.table, changed=told.append, found=lambda: None)
    good = dict.fromkeys(("GPU-0", "GPU-1"), Check(Answer.GOOD))
    news.looked(Look(good, source="nvml"), links={("GPU-0", "GPU-1"): 2})
    assert gpus.table.affinity(NAME) is not None
    news.looked(Look(good | {"GPU-1": Check(Answer.LOST, "GpuLost", "gone")}, source="nvml"), links={})
    assert gpus.table.affinity(NAME) is None
    news.looked(Look({}, source="nvml", unanswered="it hangs"), links={})
    assert told == [frozenset(), {NAME}, frozenset()]
