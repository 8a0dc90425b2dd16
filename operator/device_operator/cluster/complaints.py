"""Reads Events about missing agent pods. A pass asks the API server when it needs them; they are not watched."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from device_operator.cluster import views
from device_operator.cluster.client import UNREACHABLE, ApiError, ApiResource, Client, Object
from device_operator.status.observed import FailedCreate, PodWarning

logger = logging.getLogger(__name__)

V = TypeVar("V")

_DAEMONSET: Final = "kind=DaemonSet,involvedObject.name={},reason=FailedCreate"
_POD: Final = "kind=Pod,involvedObject.name={},type=Warning"


class _RecentAnswers:
    """Answers by question, each valid for some seconds. Passes that ask at the same time ask the server twice."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._answers: dict[str, tuple[float, tuple[Any, ...]]] = {}

    async def get(self, question: str, ask: Callable[[], Awaitable[tuple[V, ...]]]) -> tuple[V, ...]:
        at, known = self._answers.get(question, (float("-inf"), ()))
        if self._clock() - at < self._seconds:
            return known
        answer = await ask()
        now = self._clock()
        # pod names are never used again, so old answers would pile up
        self._answers = {q: found for q, found in self._answers.items() if now - found[0] < self._seconds}
        self._answers[question] = (now, answer)
        return answer


class Complaints:
    """`seconds`: how long an answer is valid."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._events = ApiResource("", "v1", "events", namespace)
        self._recent = _RecentAnswers(seconds, clock)

    async def failed_creates(self, daemonsets: Iterable[str]) -> tuple[FailedCreate, ...]:
        """Why the controller cannot make pods of these DaemonSets, the oldest first."""
        found: list[FailedCreate] = []
        for name in daemonsets:
            found += await self._about(_DAEMONSET.format(name), views.failed_create)
        return tuple(sorted(found, key=lambda f: f.last_seen))

    async def pod_warnings(self, pods: Iterable[str]) -> tuple[PodWarning, ...]:
        """The newest Warning about each of these pods."""
        found: list[PodWarning] = []
        for name in sorted(set(pods)):
            warnings = await self._about(_POD.format(name), views.pod_warning)
            if warnings:
                found.append(max(warnings, key=lambda w: (w.last_seen, w.message)))
        return tuple(found)

    async def _about(self, what: str, view: Callable[[Object], V]) -> tuple[V, ...]:
        """Events about an object. `what`: the field selector, without its first `involvedObject.`."""

        async def ask() -> tuple[V, ...]:
            items: list[V] = []
            try:
                async for page in self._client.pages(self._events, fields=f"involvedObject.{what}"):
                    items += map(view, page["items"])
            except (ApiError, *UNREACHABLE) as error:
                # the status only has less detail without them
                logger.warning("events not read", extra={"about": what, "error": str(error)})
            return tuple(items)

        return await self._recent.get(what, ask)
