"""Who holds which device, from the kubelet's PodResources service. Nothing else reports that a device is free again.

The answer is eventually consistent. Asking is also what makes the kubelet free devices (List runs
UpdateAllocatedDevices). Nothing that serves a pod waits for it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from device_agent.kubelet import rpc
from device_agent.kubelet.proto import podresources_pb2 as pr
from device_agent.runtime.settings import Settings
from device_agent.table.holders import Holder, Listing

logger = logging.getLogger(__name__)

RECEIVE_LIMIT: Final = 64 * 1024 * 1024
"""List names every pod of the node, with all of its devices."""
_FOLLOW_UPS: Final = 4


class PodResourcesError(Exception):
    """List gave no usable answer. `limited`: the rate limit was exceeded, which all clients of the node share."""

    def __init__(self, message: str, *, limited: bool = False) -> None:
        super().__init__(message)
        self.limited = limited


def listing(answer: pr.ListPodResourcesResponse) -> Listing:
    """One List: who has what, of every plugin; several containers for an id that is shared in time."""
    found: dict[str, dict[str, list[Holder]]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                holder = Holder(namespace=pod.namespace, pod=pod.name, container=container.name)
                ids = found.setdefault(devices.resource_name, {})
                for device in devices.device_ids:
                    if holder not in (those := ids.setdefault(device, [])):
                        those.append(holder)
    return Listing(
        holders={resource: {i: tuple(those) for i, those in ids.items()} for resource, ids in found.items()},
        pods=frozenset((pod.namespace, pod.name) for pod in answer.pod_resources),
    )


class PodResources:
    """Asks List on one channel, which is kept until it fails.

    `itself`: (namespace, name) of the agent's own pod, None outside a pod. A kubelet that has just started lists only
    the pods that it knows so far, so other pods would seem to have ended. If the agent's own pod is missing, the answer
    is incomplete and counts as none.
    """

    def __init__(self, socket: Path, *, deadline: float, itself: tuple[str, str] | None = None) -> None:
        self._socket = socket
        self._deadline = deadline
        self._itself = itself
        self._channel: grpc.aio.Channel | None = None

    async def list(self) -> Listing:
        """Who holds which ids.

        Raises:
            PodResourcesError: no kubelet, no answer in time, rate limit exceeded, or an incomplete list.
        """
        if self._channel is None:
            options = (rpc.LOCAL_AUTHORITY, ("grpc.max_receive_message_length", RECEIVE_LIMIT))
            self._channel = grpc.aio.insecure_channel(f"unix:{self._socket}", options=options)
        try:
            answer = await rpc.call(self._channel, rpc.LIST)(pr.ListPodResourcesRequest(), timeout=self._deadline)
        except grpc.aio.AioRpcError as error:
            await self.close()  # a broken channel would wait for its reconnect delay
            raise PodResourcesError(
                _explained(error), limited=error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            ) from error
        told = listing(answer)
        if self._itself and self._itself not in told.pods:
            raise PodResourcesError("the kubelet has not yet heard of all its pods")
        return told

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _explained(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return "the kubelet's PodResources service does not answer"
    return f"PodResources List: {error.code().name}: {' '.join((error.details() or '').split())}"


class HolderPoll:
    """Asks every 10 to 30 s, and soon after an Allocate or after answers begin to fail. Hands each answer on.

    `deliver(answer or None, begun)`: monotonic seconds at which the question was put.
    """

    def __init__(
        self,
        service: PodResources,
        *,
        deliver: Callable[[Listing | None, float], None],
        settings: Settings,
    ) -> None:
        self._service = service
        self._deliver = deliver
        self._settings = settings
        self._soon = asyncio.Event()
        self._follow_ups = _FOLLOW_UPS
        self._limited = False
        self._told: str | None = None

    def soon(self) -> None:
        """Asks soon instead of at the next interval."""
        self._follow_ups = _FOLLOW_UPS
        self._soon.set()

    async def ask(self) -> None:
        """Asks once and delivers the answer."""
        begun = time.monotonic()
        try:
            answer = await self._service.list()
        except PodResourcesError as error:
            if self._told is None:
                self._follow_ups = _FOLLOW_UPS
            if self._told != str(error):
                logger.warning("holders are unknown", extra={"error": str(error)})
                self._told = str(error)
            self._limited = error.limited
            self._deliver(None, begun)
            return
        self._limited = False
        if self._told is not None:
            logger.info("holders are known again")
            self._told = None
        self._deliver(answer, begun)

    async def run(self) -> None:
        """Asks until cancelled, first after one interval: the start has already asked."""
        while True:
            await self._pause()
            await self.ask()

    async def _pause(self) -> None:
        settings = self._settings
        if self._limited:
            await asyncio.sleep(settings.holders_backoff * random.uniform(0.5, 1))  # noqa: S311 - spreads load
            return
        if not self._soon.is_set() and not (self._told is not None and self._follow_ups > 0):
            interval = random.uniform(settings.holders_poll_min, settings.holders_poll_max)  # noqa: S311 - as above
            try:
                async with asyncio.timeout(interval):
                    await self._soon.wait()
            except TimeoutError:
                return
        self._soon.clear()
        self._follow_ups -= 1
        await asyncio.sleep(settings.holders_soon)
