"""One running registration for each resource name that is offered to the kubelet."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from device_agent.kubelet.registration import Registration, RegistrationState
from device_agent.table.device_table import DeviceTable

logger = logging.getLogger(__name__)

Spawn = Callable[[str, Callable[[], Coroutine[Any, Any, None]]], "asyncio.Task[None]"]


class ServedNames:
    """Runs the registrations. `make`: makes one for a name. `spawn`: starts a task.

    `settle`: seconds that the kubelet needs to notice the end of a stream. `wait_for`: what a name's first registration
    waits for, '' for nothing. Before that its devices are not all known, and the kubelet would get too few.
    """

    def __init__(
        self,
        table: DeviceTable,
        *,
        make: Callable[[str], Registration],
        spawn: Spawn,
        settle: float,
        wait_for: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._table = table
        self._wait_for = wait_for
        self._make = make
        self._spawn = spawn
        self._settle = settle
        self._registrations: dict[str, Registration] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, set[asyncio.Task[None]]] = {}

    @property
    def states(self) -> Mapping[str, RegistrationState]:
        """The state of each name's registration."""
        return {name: registration.state for name, registration in self._registrations.items()}

    def registrations(self) -> Collection[Registration]:
        return self._registrations.values()

    def follow(self, changed: frozenset[str]) -> None:
        """Starts and ends registrations to match the table's names. The lists of the names in `changed` are new."""
        served = self._table.resources()
        for name in served:
            if name not in self._registrations and not self._wait_for(name):
                self.offer(name)
        for name in tuple(self._registrations):
            if (name not in served and not self._table.ours(name)) or self._table.taken_name(name):
                self.withdraw(name)
            elif name in changed:
                self._registrations[name].refresh()
            else:
                self._registrations[name].look()  # its options may have changed

    def resend(self) -> None:
        """Sends any one of the lists again: the kubelet writes its record after each list."""
        for registration in self._registrations.values():
            if registration.resend():
                return

    def sent_at(self) -> float | None:
        """When a list was last sent, monotonic seconds; None: none was."""
        return max((registration.sent_at for registration in self._registrations.values()), default=0.0) or None

    def missing(self) -> tuple[str, ...]:
        """Served names that are not registered, each with the reason."""
        none = RegistrationState(registered=False, since=None, message="")
        states = self.states
        return tuple(
            f"{name} is not registered: {state.message or self._wait_for(name) or 'not tried yet'}"
            for name in self._table.resources()
            if not (state := states.get(name, none)).registered
        )

    def offer(self, name: str) -> "asyncio.Task[None]":
        registration = self._registrations[name] = self._make(name)
        before = tuple(self._ending.get(name, ()))

        async def run() -> None:
            if before:
                # two streams of one resource would end each other in the kubelet
                await asyncio.wait(before)
                await asyncio.sleep(self._settle)
            await registration.run()

        task = self._tasks[name] = self._spawn(f"resource {name}", run)
        return task

    def withdraw(self, name: str) -> "asyncio.Task[None]":
        logger.info("no longer offered", extra={"resource": name})
        del self._registrations[name]
        task = self._tasks.pop(name)
        ending = self._ending.setdefault(name, set())
        ending.add(task)
        task.add_done_callback(ending.discard)
        task.cancel()
        return task
