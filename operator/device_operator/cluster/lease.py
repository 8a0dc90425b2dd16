"""Leader election by a coordination.k8s.io/v1 Lease, with the timing rules of client-go's leaderelection.

Clocks of other machines are not trusted: a standby measures with its own clock how long the Lease was not renewed. A
leader that cannot renew within the renew deadline ends; only after that may a standby take over. kopf's peering is no
lock: with equal priorities all peers pause, and a foreign peering object can pause us.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from device_operator.cluster.client import UNREACHABLE, ApiError, ApiResource, Client, Object
from device_operator.runtime import errors

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Seconds; retry < renew_deadline < duration."""

    name: str
    namespace: str
    identity: str
    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    @property
    def attempt(self) -> float:
        """Seconds for one attempt: a request that hangs on a dead connection must leave time for others."""
        return max(self.retry, self.renew_deadline / 3)


class Election:
    """Call `acquire`, then `hold`. When `hold` ends, call `release`."""

    def __init__(
        self,
        client: Client,
        settings: LeaseSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._now = now
        self._resource = ApiResource("coordination.k8s.io", "v1", "leases", settings.namespace)
        self._seen: tuple[str, Any] = ("", None)
        self._seen_at = clock()
        self._lease: Object | None = None
        self.leading = False

    async def acquire(self) -> None:
        """Returns when this process leads. After a refusal or without an answer it tries again, for ever."""
        told = ""
        while not await self.try_once():
            holder = self._seen[0]
            if holder != told:
                logger.info("standing by", extra={"lease": self._settings.name, "holder": holder})
                told = holder
            await asyncio.sleep(self._settings.retry)
        self.leading = True
        logger.info("leading", extra={"lease": self._settings.name, "identity": self._settings.identity})

    async def hold(self) -> None:
        """Renews for ever.

        Raises:
            errors.LeaseLostError: somebody else has it, or it could not be renewed within the renew deadline.
        """
        settings = self._settings
        renewed = self._clock()
        while True:
            await asyncio.sleep(settings.retry)
            left = renewed + settings.renew_deadline - self._clock()
            try:
                async with asyncio.timeout(max(min(left, settings.attempt), 0.0)):
                    if await self._renew():
                        renewed = self._clock()
                        continue
            except (ApiError, *UNREACHABLE) as error:
                logger.warning("lease not renewed", extra=_fields(settings, error))
            taken = self._seen[0] not in ("", settings.identity)
            if taken or self._clock() - renewed >= settings.renew_deadline:
                self.leading = False
                reason = f"{self._seen[0]} has it" if taken else f"not renewed for {settings.renew_deadline:g} s"
                raise errors.LeaseLostError(f"the lease {settings.namespace}/{settings.name} is lost: {reason}")

    async def release(self) -> None:
        """Lets a standby take over at once. Call it after the last write of this process."""
        if not self.leading or self._lease is None:
            return
        self.leading = False
        try:
            async with asyncio.timeout(self._settings.renew_deadline):
                # read again: a renewal that was cut off may have arrived
                lease = await self._client.get(self._resource, self._settings.name)
                if lease["spec"].get("holderIdentity") != self._settings.identity:
                    return
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.update(self._resource, lease)
            logger.info("lease released", extra={"lease": self._settings.name})
        except (ApiError, *UNREACHABLE) as error:
            logger.warning("lease not released", extra=_fields(self._settings, error))

    async def _renew(self) -> bool:
        """False: another process has taken it."""
        try:
            self._lease = await self._client.update(self._resource, self._claimed(self._lease))
        except ApiError as error:
            if not error.conflict and not error.not_found:
                raise
            return await self._take()
        self._seen = (self._settings.identity, None)
        return True

    async def try_once(self) -> bool:
        try:
            async with asyncio.timeout(self._settings.renew_deadline):
                return await self._take()
        except (ApiError, *UNREACHABLE) as error:
            logger.warning("lease not read", extra=_fields(self._settings, error))
            return False

    async def _take(self) -> bool:
        """Takes the Lease if it is free, ours or expired."""
        try:
            try:
                lease = await self._client.get(self._resource, self._settings.name)
            except ApiError as error:
                if not error.not_found:
                    raise
                self._lease = await self._client.create(self._resource, self._claimed(None))
                return True
            spec = lease.get("spec", {})
            holder = spec.get("holderIdentity", "")
            seen = (holder, (spec.get("renewTime"), spec.get("leaseTransitions")))
            if seen != self._seen:
                self._seen, self._seen_at = seen, self._clock()
            expires = self._seen_at + float(spec.get("leaseDurationSeconds", self._settings.duration))
            if holder not in ("", self._settings.identity) and self._clock() < expires:
                return False
            self._lease = await self._client.update(self._resource, self._claimed(lease))
        except ApiError as error:
            if error.conflict or error.already_exists:
                return False  # another standby took it first
            raise
        self._seen = (self._settings.identity, None)
        return True

    def _claimed(self, lease: Object | None) -> Object:
        """The Lease with this process as its holder: a new one, or the one that was read, with its resourceVersion."""
        settings, now = self._settings, self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before: Object = (lease or {}).get("spec", {})
        ours = before.get("holderIdentity") == settings.identity
        spec = {
            **before,
            "holderIdentity": settings.identity,
            "leaseDurationSeconds": max(1, round(settings.duration)),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if ours else now,
            "leaseTransitions": before.get("leaseTransitions", 0) + (0 if ours or lease is None else 1),
        }
        meta = lease["metadata"] if lease else {"name": settings.name, "namespace": settings.namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def _fields(settings: LeaseSettings, error: Exception) -> dict[str, str]:
    return {"lease": settings.name, "error": str(error) or type(error).__name__}
