"""What a leader does when the Lease cannot be renewed. Taking over and releasing: tests/operator, on a real server."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from device_operator.cluster.client import ApiError, Client
from device_operator.cluster.lease import Election, LeaseSettings
from device_operator.runtime import errors

SETTINGS = LeaseSettings(name="l", namespace="n", identity="me", duration=0.6, renew_deadline=0.3, retry=0.02)


class Answers:
    """A client whose answers are set while it runs."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {"metadata": {"name": "l"}, "spec": {}}
        self.failure: Exception | None = None
        self.hanging = False
        self.hangs = 0
        self.writes = 0
        self.written = asyncio.Event()
        self.refused = asyncio.Event()

    async def get(self, *_: object) -> dict[str, Any]:
        await self._answer()
        return self.lease

    async def update(self, _: object, body: dict[str, Any]) -> dict[str, Any]:
        await self._answer()
        self.writes += 1
        self.written.set()
        self.lease = body
        return body

    async def _answer(self) -> None:
        if self.hanging or self.hangs:
            self.hangs = max(self.hangs - 1, 0)
            await asyncio.Event().wait()
        if self.failure:
            self.refused.set()
            raise self.failure


def election(
    answers: Answers, settings: LeaseSettings = SETTINGS, *, clock: Callable[[], float] = time.monotonic
) -> Election:
    return Election(cast("Client", answers), settings, clock=clock)


async def happens(event: asyncio.Event, *, times: int) -> None:
    for _ in range(times):
        event.clear()
        await asyncio.wait_for(event.wait(), 30)


async def test_a_server_that_hangs_ends_leadership_at_the_renew_deadline() -> None:
    answers = Answers()
    leader = election(answers)
    await leader.acquire()
    answers.hanging = True
    with pytest.raises(errors.LeaseLostError, match=r"not renewed for 0\.3 s"):
        async with asyncio.timeout(SETTINGS.duration):
            await leader.hold()
    assert not leader.leading


@pytest.mark.parametrize("hangs", [1, 2])
async def test_requests_that_hang_leave_time_for_others(hangs: int) -> None:
    answers = Answers()
    leader = election(answers, replace(SETTINGS, renew_deadline=1.5, duration=3))
    await leader.acquire()
    before = answers.writes
    answers.hangs = hangs
    answers.written.clear()
    holding = asyncio.create_task(leader.hold())
    await asyncio.wait([holding, asyncio.create_task(answers.written.wait())], return_when="FIRST_COMPLETED")
    assert not holding.done()
    assert leader.leading
    assert answers.writes > before
    holding.cancel()


async def test_refusals_before_the_renew_deadline_do_not_lose_the_lease() -> None:
    answers = Answers()
    leader = election(answers, clock=lambda: 0.0)  # the deadline never comes
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    answers.failure = ApiError(code=500, reason="InternalError", message="etcd", request="update")
    await happens(answers.refused, times=4)
    answers.failure = None
    await happens(answers.written, times=2)
    assert leader.leading
    assert not holding.done()
    holding.cancel()


async def test_a_standby_waits_for_the_holders_duration_from_its_own_first_look() -> None:
    answers = Answers()
    answers.lease["spec"] = {"holderIdentity": "other", "leaseDurationSeconds": 1, "renewTime": "1999-01-01T00:00:00Z"}
    clock = [100.0]
    standby = Election(cast("Client", answers), SETTINGS, clock=lambda: clock[0])
    assert not await standby.try_once(), "an old renewTime proves nothing: clocks differ"
    clock[0] += 0.9
    assert not await standby.try_once()
    answers.lease["spec"]["renewTime"] = "1999-01-01T00:00:01Z"
    clock[0] += 0.9
    assert not await standby.try_once(), "it was renewed"
    clock[0] += 1.0
    assert await standby.try_once()
    assert answers.lease["spec"]["holderIdentity"] == "me"
    assert answers.lease["spec"]["leaseTransitions"] == 1


async def test_a_lost_lease_is_not_released() -> None:
    answers = Answers()
    leader = election(answers)
    await leader.acquire()
    answers.lease = {"metadata": {}, "spec": {"holderIdentity": "other"}}
    written = answers.writes
    await leader.release()
    assert answers.writes == written
