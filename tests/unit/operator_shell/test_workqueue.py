"""The queue: nothing is lost, nothing is done twice at once, failures wait longer and longer."""

import asyncio
from collections import Counter

import pytest
from device_operator.runtime.workqueue import WorkQueue
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make(**settings: float) -> tuple[WorkQueue, Clock]:
    clock = Clock()
    return WorkQueue(clock=clock, jitter=lambda: 1.0, **settings), clock


async def taken(queue: WorkQueue) -> str | None:
    """The next key, None where a worker would wait."""
    try:
        async with asyncio.timeout(0):
            return await queue.get()
    except TimeoutError:
        return None


async def test_many_changes_of_a_key_are_one_pass() -> None:
    queue, _ = make()
    for _ in range(5):
        queue.add("a")
    assert (await taken(queue), await taken(queue)) == ("a", None)


async def test_keys_come_in_the_order_of_their_first_change() -> None:
    queue, _ = make()
    for key in "abcab":
        queue.add(key)
    assert [await taken(queue) for _ in range(4)] == ["a", "b", "c", None]


async def test_a_change_during_a_pass_makes_another_one_after_it() -> None:
    queue, _ = make()
    queue.add("a")
    assert await taken(queue) == "a"
    queue.add("a")
    assert await taken(queue) is None, "two workers would have one key"
    queue.done("a")
    assert await taken(queue) == "a"


async def test_the_shortest_of_several_waits_counts() -> None:
    queue, clock = make()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    clock.now = 2.9
    assert await taken(queue) is None
    clock.now = 3.0
    assert await taken(queue) == "a"
    queue.done("a")
    clock.now = 60.0
    assert await taken(queue) is None, "the other waits were for the same look"


async def test_a_change_ends_a_wait() -> None:
    queue, clock = make()
    queue.add_after("a", 10)
    queue.add("a")
    assert await taken(queue) == "a"
    queue.done("a")
    clock.now = 11.0
    assert await taken(queue) is None


async def test_failures_wait_longer_until_one_pass_succeeds() -> None:
    queue, _ = make(backoff=0.5, backoff_max=60)
    waits = [queue.add_failed("a") for _ in range(9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    queue.forget("a")
    assert queue.add_failed("a") == 0.5


async def test_a_waiting_worker_is_woken_by_a_change_and_by_time() -> None:
    queue = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await worker == "a"
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("b", 0.01)
    assert await asyncio.wait_for(worker, 5) == "b"


@pytest.mark.parametrize("workers", [1, 3])
async def test_keys_are_spread_over_workers_and_each_key_has_one(workers: int) -> None:
    queue, _ = make()
    holders: Counter[str] = Counter()
    seen: Counter[str] = Counter()

    async def work() -> None:
        while True:
            key = await queue.get()
            holders[key] += 1
            assert holders[key] == 1, f"{key} has two workers"
            await asyncio.sleep(0)
            if seen[key] < 3:
                queue.add(key)
            seen[key] += 1
            if sum(seen.values()) == 16:
                finished.set()
            holders[key] -= 1
            queue.done(key)

    finished = asyncio.Event()
    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    for key in "abcd":
        queue.add(key)
    await asyncio.wait_for(finished.wait(), 5)
    assert not [t for t in tasks if t.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.just(0.0)),
        st.tuples(st.just("later"), st.sampled_from("abc"), st.floats(0, 5)),
        st.tuples(st.just("get"), st.just(""), st.just(0.0)),
        st.tuples(st.just("done"), st.sampled_from("abc"), st.just(0.0)),
        st.tuples(st.just("time"), st.just(""), st.floats(0, 5)),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_change_is_followed_by_a_pass_that_began_after_it(steps: list[tuple[str, str, float]]) -> None:
    async def run() -> None:
        queue, clock = make()
        working: set[str] = set()
        owed: set[str] = set()  # changed, and no pass has begun since
        for what, key, seconds in steps:
            if what == "add":
                queue.add(key)
                owed.add(key)
            elif what == "later":
                queue.add_after(key, seconds)
                owed.add(key)
            elif what == "time":
                clock.now += seconds
            elif what == "get":
                got = await taken(queue)
                if got is not None:
                    assert got not in working
                    assert got in owed, "a pass that nobody asked for"
                    working.add(got)
                    owed.discard(got)
            elif key in working:
                working.remove(key)
                queue.done(key)
        clock.now += 10
        for key in sorted(working):
            queue.done(key)
        rest: set[str] = set()
        while (got := await taken(queue)) is not None:
            rest.add(got)
            queue.done(got)
        assert rest == owed

    asyncio.run(run())
