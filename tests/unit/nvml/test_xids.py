"""The table of XIDs, the rules of an entry that change it, and health news from NVML."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from device_agent.contract.document import Clears, HealthRules, XidRule
from device_agent.health.news import Answer, Code, DriverLoad, Fault
from device_agent.nvml import health_news, xids
from device_agent.nvml.library import GPU_IS_LOST, RESET_REQUIRED, NvmlCallError
from device_agent.nvml.model import Gpu, GpuState, NvmlView, XidEvent
from device_agent.nvml.reading import of_error


def test_rows_are_unique_and_have_meaning_and_advice():
    numbers = [row.xid for row in xids.ROWS]
    assert numbers == sorted(set(numbers))
    assert all(row.meaning and row.advice for row in xids.ROWS)


def test_health_md_lists_the_table():
    page = (Path(__file__).parents[3] / "docs/health.md").read_text()
    table = page.partition("### XIDs that count")[2].partition("\n## ")[0]
    shown = {}
    for numbers, clears in re.findall(r"^\| ([\d, -]+) \|.*\| (Quiet|Reset) \|$", table, re.MULTILINE):
        for item in numbers.split(", "):
            first, _, last = item.partition("-")
            shown |= dict.fromkeys(range(int(first), int(last or first) + 1), clears)
    assert shown == {row.xid: row.clears.value for row in xids.ROWS}


@pytest.mark.parametrize("xid", [48, 64, 79, 95, 119, 140])
def test_xids_that_need_a_reset_are_failures_until_a_reset(xid):
    ruling = xids.rule(xids.code(xid), HealthRules())
    assert ruling is not None
    assert (ruling.cause, ruling.clears) == (f"Xid{xid}", Clears.RESET)
    assert f"XID {xid}: " in ruling.message


@pytest.mark.parametrize("xid", [8, 13, 31, 32, 43, 45, 63, 68, 69, 92, 94, 154])
def test_xids_of_programs_are_no_failures(xid):
    assert xids.rule(xids.code(xid), HealthRules()) is None


@pytest.mark.parametrize(
    ("rules", "xid", "clears"),
    [
        (HealthRules(ignore_xids=(79,)), 79, None),
        (HealthRules(xids=(XidRule(79, clears=Clears.QUIET),)), 79, Clears.QUIET),
        (HealthRules(xids=(XidRule(94),)), 94, Clears.RESET),
        (HealthRules(xids=(XidRule(94, clears=Clears.QUIET),)), 94, Clears.QUIET),
        (HealthRules(xids=(XidRule(999),)), 999, Clears.RESET),
        (HealthRules(xids=(XidRule(94),)), 79, Clears.RESET),
    ],
)
def test_a_resource_may_ignore_add_and_change_rows(rules, xid, clears):
    ruling = xids.rule(xids.code(xid), rules)
    assert (ruling.clears if ruling else None) == clears


def test_a_code_with_another_label_has_no_ruling():
    assert xids.rule(Code("ERR", "79"), HealthRules()) is None


def gpu(uuid: str = "GPU-a", **state) -> Gpu:
    return Gpu(uuid=uuid, index=0, minor=0, pci_address="0000:3b:00.0", state=GpuState(**state))


WITHOUT_MIG = gpu()
PARTED, WHOLE = replace(WITHOUT_MIG, mig_mode=True), replace(WITHOUT_MIG, mig_mode=False)
NOT_SEEN = None


@pytest.mark.parametrize(
    ("state", "answer", "cause"),
    [
        ({}, Answer.GOOD, ""),
        ({"recovery_action": "None"}, Answer.GOOD, ""),
        ({"recovery_action": "DrainP2P"}, Answer.BAD, "RecoveryActionPending"),
        ({"known": False}, Answer.UNKNOWN, ""),
        ({"failures": (("RowRemapFailed", "x"), ("GpuLost", "y"))}, Answer.LOST, "GpuLost"),
        ({"failures": (("RowRemapFailed", "x"), ("ResetRequired", "y"))}, Answer.BAD, "RowRemapFailed"),
    ],
)
def test_a_gpus_state_becomes_a_check(state, answer, cause):
    check = health_news.look(NvmlView(gpus=(gpu(**state),))).checks["GPU-a"]
    assert (check.answer, check.cause) == (answer, cause)


def test_a_look_names_the_load_of_the_driver():
    assert health_news.look(NvmlView(epoch=3, driver_load="17")).load == DriverLoad("17", 3)


def test_a_look_without_an_answer_says_why():
    found = health_news.look(NvmlView(gpus=(gpu(),), unavailable="NVML hangs"))
    assert (found.unanswered, found.checks) == ("NVML hangs", {})


@pytest.mark.parametrize(
    ("gpu", "gi", "ci", "part"),
    [
        (PARTED, None, None, "GPU-a"),
        (PARTED, 0, None, "GPU-a/0"),
        (PARTED, 0, 0, "GPU-a/0/0"),
        (PARTED, 3, 0, "GPU-a/3/0"),
        (WHOLE, None, None, "GPU-a"),
        (WHOLE, 0, 0, "GPU-a"),
        (WITHOUT_MIG, 0, 0, "GPU-a"),
        (NOT_SEEN, 0, 0, "GPU-a"),
        (NOT_SEEN, 3, 0, "GPU-a/3/0"),
    ],
)
def test_an_event_becomes_a_fault_of_its_part(gpu, gi, ci, part):
    event = XidEvent("GPU-a", 79, 1.0, gi=gi, ci=ci, epoch=3, driver_load="17")
    assert health_news.fault(event, gpu) == Fault(part, Code("XID", "79"), source="nvml", load=DriverLoad("17", 3))


def test_failures_and_silence_of_a_gpu_come_with_advice():
    for code in (GPU_IS_LOST, RESET_REQUIRED):
        [(_, message)] = of_error(NvmlCallError(code, "x")).failures
        assert "reset it" in message
        assert "reboot the node" in message
    silent = health_news.look(NvmlView(gpus=(Gpu("GPU-1", 0, 0, "", state=GpuState(known=False)),))).checks["GPU-1"]
    assert "GPU-1" in silent.message
    assert "nvidia-smi" in silent.message


def test_a_driver_that_hangs_gives_the_cause_driver_unavailable():
    look = health_news.look(NvmlView(unavailable="NVML hangs: nvmlInitWithFlags does not answer"))
    assert (look.unanswered, look.cause) == ("NVML hangs: nvmlInitWithFlags does not answer", "DriverUnavailable")
