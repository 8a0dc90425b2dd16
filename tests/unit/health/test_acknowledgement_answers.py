"""The reply to each item of an acknowledgement."""

from pathlib import Path

import pytest
from device_agent.contract.times import since_text
from unit.health import news
from unit.health.gpus import Gpus, gpu, mig

SECOND = "2026-01-01T00:00:12Z"


def failing() -> Gpus:
    """GPU-0 fails at 12 s with one XID; GPU-1 is fine; the state of GPU-2 is bad."""
    gpus = Gpus(gpu(0), gpu(1), gpu(2))
    gpus.look(GPU_2=news.BAD)
    gpus.xid(news.RESET_XID)
    assert since_text(gpus.device("GPU-0").since) == SECOND
    return gpus


def words(gpus: Gpus, text: str) -> list[str]:
    return [reply.words for reply in gpus.table.acknowledge(text, now=gpus.now, wall=gpus.wall)[1]]


RIGHT = f"GPU-0={SECOND} (Xid79)"
"""The item that ends the one failure, as a reply shows it."""


@pytest.mark.parametrize(
    ("text", "mistake", "right"),
    [
        ("garbage", "<device>=<since>", RIGHT),
        ("GPU-0", "<device>=<since>", RIGHT),
        ("GPU-0=", "<device>=<since>", RIGHT),
        ("GPU-0=yesterday", "<device>=<since>", RIGHT),
        ("GPU-0=2026-01-01 00:00:12", "<device>=<since>", RIGHT),
        (f"GPU-9={SECOND}", "no device", RIGHT),
        ("GPU-0=2026-01-01T00:00:13Z", "no failure of it began", RIGHT),
        (f"GPU-1={SECOND}", "no failure now", ""),
        ("GPU-2=2026-01-01T00:00:11Z", "RowRemapFailed", ""),
    ],
)
def test_a_reply_to_a_wrong_item_names_the_mistake_and_the_right_item(text, mistake, right):
    gpus = failing()
    [told] = words(gpus, text)
    assert told.startswith(f"{text}: ")
    assert mistake in told
    assert told.endswith(right)
    assert ("Xid79" in told) == bool(right)
    assert gpus.seen()["GPU-0"] is False


@pytest.mark.parametrize(
    "text",
    [
        f" GPU-0 = {SECOND} ",
        f"GPU-0={SECOND},",
        f"foo , GPU-0={SECOND}",
        "GPU-0=2026-01-01T01:00:12+01:00",
        "GPU-0=2026-01-01 00:00:12Z",
    ],
)
def test_blanks_and_other_forms_of_the_time_are_accepted(text):
    gpus = failing()
    taken = [w for w in words(gpus, text) if "taken" in w]
    [told] = taken
    assert f"taken at {since_text(gpus.wall)}, Xid79 ended" in told
    gpus.looks(3, GPU_2=news.BAD)
    assert gpus.seen() == {"GPU-0": True, "GPU-1": True, "GPU-2": False}


def test_wrong_and_right_items_both_get_replies():
    gpus = failing()
    wrong, right = words(gpus, f"foo,GPU-0={SECOND}")
    assert wrong.startswith("foo: ")
    assert "taken" in right


def test_a_reply_shows_three_right_items_at_most():
    gpus = Gpus(*(gpu(n) for n in range(5)))
    for n in range(5):
        gpus.xid(news.RESET_XID, f"GPU-{n}")
    [told] = words(gpus, "x")
    assert told.count("Xid79") == 3
    assert told.endswith(" and 2 more")


def test_the_reply_for_a_partition_shows_the_failures_of_its_gpu():
    gpus = Gpus(mig(0, gi=1), mig(0, gi=2))
    gpus.xid(news.RESET_XID)
    since = since_text(gpus.wall)
    [told] = words(gpus, "MIG-0-2-0=2020-01-01T00:00:00Z")
    assert told.endswith(f"GPU-0={since} (Xid79)")


def test_no_annotation_is_too_long():
    gpus = failing()
    told = words(gpus, ",".join([*(f"x{n}" for n in range(100_000)), f"GPU-0={SECOND}"]))
    assert len(told) == 257
    assert "first 256 items" in told[-1]
    assert gpus.device("GPU-0").reason == "Xid79"


def test_the_page_for_admins_has_the_answers():
    page = (Path(__file__).parents[3] / "docs/health.md").read_text()
    gpus = failing()
    asked = [
        "x", f"GPU-9={SECOND}", "GPU-0=2020-01-01T00:00:00Z", "GPU-2=2026-01-01T00:00:11Z", f"GPU-1={SECOND}", f"GPU-0={SECOND}"
    ]  # fmt: skip
    for answer in words(gpus, ",".join(asked)):
        kind = answer.partition(": ")[2].partition(";")[0].partition(" until")[0].partition(" at 2026")[0]
        assert f"| `{kind}" in page
