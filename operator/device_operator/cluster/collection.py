"""One list and watch, reduced to views. It also finds objects that were deleted while the watch was down.

After a 410 the objects are listed again and compared with the known ones, so a deletion in between is reported. The old
content stays until a new list was read in full, so an incomplete list deletes nothing.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from device_operator.cluster.client import PAGE, UNREACHABLE, ApiError, ApiResource, Client, Object
from device_operator.runtime import errors

logger = logging.getLogger(__name__)

V = TypeVar("V")

_BACKOFF = 0.5
_BACKOFF_MAX = 30.0
_UNANSWERED_MAX = 5.0
"""Seconds. A server that is away costs nothing to ask, and one that is back must not wait for us."""
_FORBIDDEN_MAX = 60.0
"""Seconds. An API server that has just started forbids what RBAC allows, until it has read the roles."""
_LEAST_WATCH = 1.0
"""Seconds. A watch that ends sooner, without an event, is not opened again at once: that would flood the server."""


@dataclass(frozen=True, slots=True)
class Change(Generic[V]):
    """`old` None: it appeared; `new` None: it vanished."""

    name: str
    old: V | None
    new: V | None


class Collection(Generic[V]):
    """`prune` makes the view that is kept. Views must be equal when nothing of interest differs.

    `prune` also gets the previous view, to keep values that the object does not contain.
    """

    def __init__(
        self,
        resource: ApiResource,
        *,
        prune: Callable[[Object, V | None], V],
        changed: Callable[[Change[V]], None],
        labels: str = "",
        page: int = PAGE,
        metadata_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.complete = asyncio.Event()
        """Set when the first list was read in full. It stays set: a gap in the watch is closed by a new list."""
        self._prune = prune
        self._changed = changed
        self._labels = labels
        self._page = page
        self._metadata_only = metadata_only
        self._clock = clock
        self._views: dict[str, V] = {}
        self._version = ""
        self._alive = clock()
        self._fresh = clock()
        self._failures = 0
        self._unanswered = False
        self._forbidden: float | None = None

    @property
    def views(self) -> Mapping[str, V]:
        """By name. Do not store it: it changes."""
        return self._views

    def __iter__(self) -> Iterator[V]:
        return iter(self._views.values())

    def __len__(self) -> int:
        return len(self._views)

    @property
    def age(self) -> float:
        """Seconds since the last event, bookmark or list."""
        return self._clock() - self._fresh

    @property
    def silence(self) -> float:
        """Seconds since the last sign of life, failed attempts included. It grows only while a watch is stuck."""
        return self._clock() - self._alive

    def learn(self, raw: Object) -> V:
        """Adds an object from the answer to a write of our own, without waiting for the watch."""
        return self._take_in(raw)

    async def run(self, client: Client) -> None:
        """Lists and watches until it is cancelled.

        Raises:
            errors.PermissionMissingError: list or watch is forbidden; after the first list, for a minute.
        """
        while True:
            try:
                if not self._version:
                    await self._list(client)
                began = self._clock()
                told = await self._watch(client)
                self._unanswered, self._forbidden = False, None
                if not told and self._clock() - began < _LEAST_WATCH:
                    await self._wait("the watch ended as soon as it had begun")
                else:
                    self._failures = 0
            except ApiError as error:
                if self._is_missing(error):
                    raise errors.PermissionMissingError(
                        f"the ServiceAccount may not list and watch {self.resource}: {error.message}; "
                        "grant it the rules of the chart's ClusterRole and Role"
                    ) from error
                if error.gone:
                    logger.info("listing again", extra={"resource": str(self.resource), "reason": error.reason})
                self._version = ""  # a new list helps after any refusal
                if self._unanswered:
                    self._unanswered, self._failures = False, 0  # it is back
                await self._wait(str(error), at_once=error.gone and self._failures == 0)
            except UNREACHABLE as error:
                self._unanswered, self._forbidden = True, None
                await self._wait(str(error) or type(error).__name__, most=_UNANSWERED_MAX)

    async def _list(self, client: Client) -> None:
        found: dict[str, V] = {}
        version = ""
        async for page in client.pages(
            self.resource, labels=self._labels, limit=self._page, metadata_only=self._metadata_only
        ):
            self._sign_of_life()
            version = page["metadata"]["resourceVersion"]
            for item in page["items"]:
                name = item["metadata"]["name"]
                old = self._views.get(name)
                new = self._prune(item, old)
                found[name] = old if old is not None and old == new else new
            page["items"].clear()
            await asyncio.sleep(0)  # the lease must be renewed even while a big list is read
        before, self._views = self._views, found
        self._version = version
        self.complete.set()
        for name, new in found.items():
            old = before.pop(name, None)
            if old != new:
                self._changed(Change(name, old, new))
        for name, old in before.items():
            self._changed(Change(name, old, None))

    async def _watch(self, client: Client) -> bool:
        """Watches until the stream ends. Returns whether an event or bookmark came."""
        told = False
        self._alive = self._clock()
        async for event in client.watch(
            self.resource, version=self._version, labels=self._labels, metadata_only=self._metadata_only
        ):
            self._sign_of_life()
            told = True
            self._failures = 0
            self._version = event.object["metadata"]["resourceVersion"]
            if event.kind == "BOOKMARK":
                continue
            if event.kind == "DELETED":
                name = event.object["metadata"]["name"]
                if (old := self._views.pop(name, None)) is not None:
                    self._changed(Change(name, old, None))
                continue
            self._take_in(event.object)
        return told

    def _take_in(self, raw: Object) -> V:
        name = raw["metadata"]["name"]
        old = self._views.get(name)
        new = self._prune(raw, old)
        if old != new:
            self._views[name] = new
            self._changed(Change(name, old, new))
        return new

    def _is_missing(self, error: ApiError) -> bool:
        """Whether the refusal means that a permission is missing."""
        if not error.forbidden:
            self._forbidden = None
            return False
        self._forbidden = self._clock() if self._forbidden is None else self._forbidden
        return not self.complete.is_set() or self._clock() - self._forbidden >= _FORBIDDEN_MAX

    def _sign_of_life(self) -> None:
        self._alive = self._fresh = self._clock()

    async def _wait(self, reason: str, *, at_once: bool = False, most: float = _BACKOFF_MAX) -> None:
        self._alive = self._clock()
        wait = 0.0 if at_once else min(_BACKOFF * 2.0 ** min(self._failures, 16), most)
        wait *= 0.5 + 0.5 * random.random()  # noqa: S311 -- spreads reconnects, protects nothing
        self._failures += 1
        if self._failures > 1:
            logger.warning(
                "watch interrupted",
                extra={"resource": str(self.resource), "error": reason, "wait": round(wait, 1)},
            )
        await asyncio.sleep(wait)
