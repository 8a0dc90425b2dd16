"""Asks what the kubelet could give out, to check it against what we have registered.

The kubelet keeps one endpoint for each resource name, and the last plugin to register has it. If another plugin
takes a name over, the earlier plugin is not told. When the later plugin goes, the name has 0 devices
(devicemanager/plugin/v1beta1/handler.go). PodResources' GetAllocatableResources names the healthy ids of each resource,
and so shows who serves it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Protocol

import grpc
import grpc.aio

from device_agent.contract.node_reasons import NodeReason
from device_agent.kubelet import rpc
from device_agent.kubelet.podresources import RECEIVE_LIMIT
from device_agent.kubelet.proto import podresources_pb2 as pr
from device_agent.runtime.settings import Settings

_NAMED: Final = 3

Ids = Mapping[str, frozenset[str]]
"""Resource name -> ids that the kubelet has as healthy."""
Question = Callable[[], Awaitable[Ids | None]]


class Compared(Protocol):
    """A registration that compares the kubelet's ids with its own."""

    def compare(self, kubelet: Ids, *, begun: float) -> None:
        """`begun`: monotonic seconds at which the kubelet was asked."""
        ...


def foreign_message(resource: str, ids: Collection[str]) -> str:
    """A message for an admin: the kubelet has another plugin's devices under this name."""
    named = ", ".join(sorted(ids)[:_NAMED]) + (", ..." if len(ids) > _NAMED else "")
    return (
        f"{NodeReason.FOREIGN_PLUGIN}: another device plugin on this node serves {resource} ({named}): "
        "remove it, or give one of the two another resource name"
    )


class Allocatable:
    """Asks GetAllocatableResources. Calls at the same time share one answer: the node has one rate limit."""

    def __init__(self, socket: Path, *, settings: Settings) -> None:
        self._socket = socket
        self._settings = settings
        self._asking: asyncio.Task[Ids | None] | None = None

    async def ask(self) -> Ids | None:
        """None: no answer, which is normal while the kubelet starts."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Ids | None:
        options = (rpc.LOCAL_AUTHORITY, ("grpc.max_receive_message_length", RECEIVE_LIMIT))
        # a new channel: a used one may wait for its reconnect delay
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=options) as channel:
            question = rpc.call(channel, rpc.ALLOCATABLE)
            try:
                answer = await question(pr.AllocatableResourcesRequest(), timeout=self._settings.allocatable_deadline)
            except grpc.aio.AioRpcError:
                return None
        ids: dict[str, set[str]] = {}
        for devices in answer.devices:
            ids.setdefault(devices.resource_name, set()).update(devices.device_ids)
        return {resource: frozenset(those) for resource, those in ids.items()}

    async def watch(self, compared: Callable[[], Collection[Compared]]) -> None:
        """Asks at intervals until cancelled, and hands each answer to the registrations."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._settings.allocatable_poll)
            begun = loop.time()
            answer = await self.ask()
            if answer is not None:
                for one in tuple(compared()):
                    one.compare(answer, begun=begun)
