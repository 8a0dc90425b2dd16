"""The replies in the inventory while the annotation stays."""

import time

import pytest
from device_agent.contract.document import HealthRules
from device_agent.contract.times import since_text
from device_agent.report.acknowledgement import Acknowledgement
from unit.health import news
from unit.health.gpus import Gpus
from unit.health.test_acknowledgement_answers import SECOND, failing
from unit.table.samples import NAME, Steps, resource, unit


@pytest.fixture
def gpus() -> Gpus:
    return failing()


@pytest.fixture
def told() -> list[frozenset[str]]:
    return []


@pytest.fixture
def acknowledgement(gpus: Gpus, told: list[frozenset[str]]) -> Acknowledgement:
    return Acknowledgement(gpus.table, changed=told.append)


def test_the_reply_stays_while_the_annotation_stays(
    gpus: Gpus, acknowledgement: Acknowledgement, told: list[frozenset[str]]
) -> None:
    text = f"GPU-0={SECOND}"
    acknowledgement.read(text)
    first = acknowledgement.text
    assert first.startswith(f"{text}: taken at ")
    for _ in range(3):
        gpus.look()
        acknowledgement.read(text)
        assert acknowledgement.text == first
    news_of_it = len(told)
    acknowledgement.read(text)
    assert len(told) == news_of_it, "nothing new is nothing to tell"
    acknowledgement.read("")
    assert (acknowledgement.text, len(told)) == ("", news_of_it + 1)
    acknowledgement.read(text)
    assert acknowledgement.text == f"{text}: it has no failure now", "what was taken is forgotten with the annotation"


def test_a_later_failure_replaces_the_reply(gpus: Gpus, acknowledgement: Acknowledgement) -> None:
    text = f"GPU-0={SECOND}"
    acknowledgement.read(text)
    gpus.xid(news.RESET_XID)
    acknowledgement.read(text)
    assert acknowledgement.text.startswith(f"{text}: no failure of it began at that moment")
    assert acknowledgement.text.endswith(f"GPU-0={since_text(gpus.wall)} (Xid79)")


def test_a_list_that_changes_while_an_acknowledgement_is_read_is_sent() -> None:
    """Reading an empty annotation may change a list, because time has passed. The change must be sent."""
    steps = Steps(resource(health=HealthRules(removal_grace_seconds=60)))
    steps.now = time.monotonic() - 600
    told: list[frozenset[str]] = []
    steps.scan(unit("a"), unit("b"))
    steps.scan(unit("a"))
    steps.send()
    steps.list({})
    steps.list({})
    assert steps.seen() == {"a": True, "b": False}  # it may return within its grace
    Acknowledgement(steps.table, changed=told.append).read("")
    assert steps.seen() == {"a": True}
    assert told == [frozenset({NAME})]
