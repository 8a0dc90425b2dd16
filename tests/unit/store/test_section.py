"""Items as bytes: all facts are kept, another boot's are dropped, damaged bytes raise an error of one line."""

import json
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from device_agent.health.memory import HEALTH, lasting
from device_agent.health.watchlist import Kind, Record
from device_agent.store.configuration import CONFIG, KeptDocument
from device_agent.store.section import Section, SectionError, boot_of
from device_agent.table.grants import GRANTS, Grant, SeenGrant
from unit.health import news
from unit.health.gpus import Gpus, gpu, mig
from unit.table.samples import Steps, unit


def records() -> tuple[Record, ...]:
    gpus = Gpus(gpu(0), gpu(1), mig(2, gi=1))
    gpus.look()
    gpus.xid(news.RESET_XID)
    gpus.xid(news.QUIET_XID)
    gpus.xid(news.QUIET_XID, "GPU-2/1/0")
    gpus.look(GPU_1=news.BAD)
    gpus.units = (gpu(0), gpu(1))
    gpus.scan()
    return lasting(gpus.table.health_records())


RECORDS = records()


def grants() -> tuple[SeenGrant, ...]:
    steps = Steps()
    steps.scan(unit("a", parts=("GPU-0",), numa_node=1, replicas=2, own_nodes={"/dev/x": "char/4:64"}))
    strange = Grant("uid", "c", "example.com/\N{SNOWMAN}", ("x",), nodes=("/dev/x",), words=("0000:01:00.0",))
    return SeenGrant(steps.grant("a", "a::1"), "default", "pod"), SeenGrant(strange)


SEEN = grants()
KEPT: list[tuple[Section[Any], tuple[Any, ...]]] = [
    (HEALTH, RECORDS),
    (GRANTS, SEEN),
    (CONFIG, (KeptDocument('{"contractVersion": 1,\n "resources": ["\N{SNOWMAN}"]}\n'),)),
]


@pytest.mark.parametrize(("section", "items"), KEPT, ids=lambda v: getattr(v, "name", ""))
def test_written_items_are_read_unchanged(section: Section[Any], items: tuple[Any, ...]) -> None:
    raw = section.dump(items, boot_id="b")
    assert section.parse(raw, boot_id="b") == items
    assert section.dump(section.parse(raw, boot_id="b"), boot_id="b") == raw
    assert section.parse(section.dump((), boot_id="b"), boot_id="b") == ()


def test_the_sample_of_health_has_all_kinds_of_news() -> None:
    assert {record.kind for record in RECORDS} == {Kind.PART, Kind.SCAN}
    assert sum(bool(record.condition.failures) for record in RECORDS) >= 2
    assert all(f.load.epoch == 0 and f.load.module for r in RECORDS for f in r.condition.failures)


@pytest.mark.parametrize(("written", "read"), [("b", "other"), ("b", ""), ("", "")])
def test_health_of_another_or_an_unknown_boot_is_ignored(written: str, read: str) -> None:
    assert HEALTH.parse(HEALTH.dump(RECORDS, boot_id=written), boot_id=read) == ()


def test_grants_outlive_a_reboot() -> None:
    assert GRANTS.parse(GRANTS.dump(SEEN, boot_id="b"), boot_id="other") == SEEN


def test_only_physical_parts_are_read_from_other_objects_health() -> None:
    raw = HEALTH.dump(RECORDS, boot_id="b")
    assert HEALTH.parse(raw, boot_id="b", theirs=True) == tuple(r for r in RECORDS if r.kind is Kind.PART)
    spoiled = raw.replace(b'"kind":"Scan","name":', b'"kind":"Scan","nane":')
    assert spoiled != raw
    assert HEALTH.parse(spoiled, boot_id="b", theirs=True), "what nobody reads spoils nothing"


HEALTH_BYTES, GRANT_BYTES = HEALTH.dump(RECORDS, boot_id="b"), GRANTS.dump(SEEN, boot_id="b")


@pytest.mark.parametrize(
    ("section", "raw"),
    [
        *((section, raw) for section, _ in KEPT for raw in (
            b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"version":99,"items":[]}', b'{"items":[]}',
            section.dump((), boot_id="b").replace(b"[]", b"{}"), section.dump((), boot_id="b").replace(b"[]", b"[{}]"),
            section.dump((), boot_id="b").replace(b"[]", b'["\\n"]'),
        )),
        (HEALTH, HEALTH_BYTES.replace(b"+00:00", b"")),
        (HEALTH, HEALTH_BYTES.replace(b"Unhealthy", b"Ill")),
        (HEALTH, re.sub(rb'"20[^"]*\+00:00"', b'"0001-01-01T00:00:00+14:00"', HEALTH_BYTES)),
        (GRANTS, GRANT_BYTES[:-20]),
        (GRANTS, GRANT_BYTES.replace(b'"Stable"', b'"Sometimes"')),
        (GRANTS, GRANT_BYTES.replace(b'"replica":1', b'"replica":1.5')),
        (GRANTS, GRANT_BYTES.replace(b'"ids":["x"]', b'"ids":"x"')),
    ],
)  # fmt: skip
def test_unreadable_content_raises_an_error_of_one_line(section: Section[Any], raw: bytes) -> None:
    with pytest.raises(SectionError) as error:
        section.parse(raw, boot_id="b")
    assert str(error.value)
    assert "\n" not in str(error.value)


def test_what_nobody_could_read_is_not_written() -> None:
    small = replace(GRANTS, max_bytes=len(GRANT_BYTES) - 1)
    with pytest.raises(SectionError, match="longer than"):
        small.dump(SEEN, boot_id="")


@pytest.mark.parametrize(
    ("raw", "boot"),
    [(HEALTH_BYTES, "b"), (b'{"version":99,"bootId":"x"}', "x"), (b'{"bootId":1}', ""), (GRANT_BYTES, ""), (b"{", ""), (b"[]", ""), (b"[" * 100_000, "")],
)  # fmt: skip
def test_the_boot_is_read_from_a_file_of_any_version(raw: bytes, boot: str) -> None:
    assert boot_of(raw) == boot


def test_a_new_section_needs_only_a_dataclass_and_a_line() -> None:
    @dataclass(frozen=True, slots=True)
    class Cordon:
        device: str
        why: str = ""

    cordons = Section(name="cordons", item=Cordon, version=1, what="cordons", forgotten="cordons are lifted")
    kept = (Cordon("a", "fan"), Cordon("b"))
    assert cordons.parse(cordons.dump(kept, boot_id=""), boot_id="") == kept
    assert json.loads(cordons.dump(kept, boot_id=""))["items"][0] == {"device": "a", "why": "fan"}
