"""Doubts about ids are settled in the kubelet's order: List, one of our lists sent again, the record later."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from device_agent.kubelet.record_watch import NO_DOUBT, Settling
from device_agent.runtime.settings import Settings
from device_agent.table.device import Key
from device_agent.table.usage import SETTLE_SECONDS
from unit.table.samples import NAME


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer whenever nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            self.now += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now


def in_no_time(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(story())


A, B = (NAME, "a"), (NAME, "b")
SETTINGS = Settings()
ROUND = SETTINGS.settle_first + SETTINGS.settle_wait
"""Seconds that one round takes."""


class Doubts:
    """Ids in doubt, and what is done about them: (what, when)."""

    def __init__(self, *, looked: Callable[["Doubts"], None] = lambda _: None) -> None:
        self.ids: frozenset[Key] = NO_DOUBT
        self.done: list[tuple[str, float]] = []
        self.looked = looked
        self.settling = Settling(
            doubtful=lambda: self.ids,
            ask=self._did("List"),
            resend=lambda: self._do("resend"),
            look=self._look,
            settled=lambda: None,
            settings=SETTINGS,
        )

    def doubt(self, *ids: Key) -> None:
        self.ids = frozenset(ids)
        self.settling.stirred()

    def times(self, what: str) -> list[float]:
        return [at for did, at in self.done if did == what]

    def _do(self, what: str) -> None:
        self.done.append((what, round(asyncio.get_running_loop().time(), 6)))

    def _did(self, what: str) -> Callable[[], Awaitable[None]]:
        async def do() -> None:
            self._do(what)

        return do

    async def _look(self) -> None:
        self._do("record")
        self.looked(self)


def settled(story: Callable[[Doubts], Coroutine[Any, Any, None]], **fields: Any) -> Doubts:
    doubts = Doubts(**fields)

    async def tell() -> None:
        running = asyncio.create_task(doubts.settling.run())
        await asyncio.sleep(0)
        await story(doubts)
        running.cancel()

    in_no_time(tell)
    return doubts


def free(doubts: Doubts) -> None:
    doubts.doubt()


async def after(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_without_doubts_the_kubelet_is_not_asked() -> None:
    async def story(doubts: Doubts) -> None:
        await after(100_000)
        doubts.settling.stirred()
        await after(100_000)

    assert settled(story).done == []


def test_a_doubt_is_settled_by_list_then_a_list_sent_then_the_record_later() -> None:
    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(100_000)

    first = SETTINGS.settle_first
    assert settled(story, looked=free).done == [("List", first), ("resend", first), ("record", ROUND)]
    assert SETTINGS.settle_wait > SETTLE_SECONDS


def test_a_doubt_that_ends_by_itself_costs_nothing() -> None:
    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(SETTINGS.settle_first / 2)
        doubts.doubt()
        await after(100_000)

    assert settled(story).done == []


def test_doubts_that_stay_are_looked_at_less_and_less_often() -> None:
    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(10_000)

    asked = settled(story).times("List")
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(asked)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 2 * ROUND
    assert gaps[-1] == round(SETTINGS.settle_max + ROUND, 6)
    assert len(set(gaps)) > 5


def test_news_that_leave_the_same_doubts_wake_nobody() -> None:
    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(10_000)
        before = len(doubts.done)
        for _ in range(20):
            doubts.settling.stirred()
            await after(1)
        assert len(doubts.done) <= before + 3, "one round at most"

    settled(story)


@pytest.mark.parametrize("ids", [(B,), (A, B)])
def test_a_new_doubt_is_settled_soon_and_begins_anew(ids: tuple[Key, ...]) -> None:
    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(10_000)
        doubts.done.clear()
        now = asyncio.get_running_loop().time()
        doubts.doubt(*ids)
        await after(4 * ROUND)
        assert doubts.times("List")[0] - now <= 2 * ROUND, "after the round under way, at the latest"
        assert len(doubts.times("List")) >= 2

    settled(story)


def test_a_doubt_that_begins_during_a_round_has_a_round_of_its_own() -> None:
    """The List of the first round may have been begun before its id was handed out."""

    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(SETTINGS.settle_first + SETTINGS.settle_wait / 2)
        assert len(doubts.times("List")) == 1
        doubts.doubt(A, B)
        await after(2 * ROUND)
        assert doubts.times("List")[1] == pytest.approx(ROUND + SETTINGS.settle_first)

    settled(story)


def test_the_same_doubt_that_comes_again_after_it_ended_is_settled_soon() -> None:
    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(1_000)
        now = asyncio.get_running_loop().time()
        doubts.doubt(A)
        await after(2 * ROUND)
        assert doubts.times("List")[-1] == pytest.approx(now + SETTINGS.settle_first)

    assert len(settled(story, looked=free).times("record")) == 2


def test_a_doubt_that_stayed_long_and_ended_is_settled_soon_when_it_comes_again() -> None:
    async def story(doubts: Doubts) -> None:
        doubts.doubt(A)
        await after(10_000)
        doubts.doubt()
        doubts.doubt(A)
        now = asyncio.get_running_loop().time()
        await after(2 * ROUND)
        assert doubts.times("List")[-1] - now <= 2 * ROUND
        assert doubts.times("List")[-1] > now

    settled(story)
