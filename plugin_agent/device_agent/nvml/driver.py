"""Runs the driver's library: starts it, reads all GPUs, and starts it again after a reload of the driver.

All calls block. Only one thread may use a `Driver` at a time; `session` provides that thread.
"""

import dataclasses
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from device_agent.contract.reasons import DeviceReason
from device_agent.contract.values import dataclass
from device_agent.discovery.source import Roots
from device_agent.nvml import library as nvml
from device_agent.nvml.access import NOTHING_SET, Access
from device_agent.nvml.events import EventWatch, listen
from device_agent.nvml.library import (
    DriverGoneError,
    Library,
    LibraryPlaces,
    NvmlCallError,
    NvmlSilentError,
    NvmlUnavailableError,
)
from device_agent.nvml.links import LinkEnd, with_links
from device_agent.nvml.model import Gpu, GpuSample, NvmlView, XidEvent, unanswered
from device_agent.nvml.reading import (
    Reading,
    cap_numbers,
    filled,
    of_error,
)
from device_agent.nvml.sampling import Samples
from device_agent.nvml.surroundings import Surroundings, mig_minors, numa_node, surroundings
from device_agent.nvml.versions import Versions

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""How long to wait for the event thread to end."""
LONGEST_RESTARTS: Final = 10
"""While a GPU is in trouble, two starts of the library are at most this many `restart_seconds` apart."""
_BACK_AFTER_A_START: Final = frozenset({DeviceReason.GPU_LOST, DeviceReason.RESET_REQUIRED})
"""Failures whose end shows only after a new start of the library."""
MAX_ERRORS: Final = 32
"""The most error lines of one look: a driver that fails in one call often fails in many."""


@dataclass(frozen=True, slots=True)
class EventCalls:
    """Callbacks of the event thread. `xid`: a GPU announced an XID. `wake`: a look may show something new."""

    xid: Callable[[XidEvent], None]
    wake: Callable[[], None]


@dataclasses.dataclass(slots=True)
class _Known:
    """What was last read of a GPU. `facts` or `link_states` None: read it again."""

    facts: Gpu | None = None
    link_states: tuple[bool, ...] | None = None
    link_ends: tuple[LinkEnd, ...] = ()


class Driver:
    """The library of one driver, and what was read from it. Call it from one thread at a time.

    `events` None: it does not listen for events. `own_dev`: the directory in which the library opens device nodes.
    `access`: the admin's settings, for the advice in messages. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        *,
        driver_root: Path,
        roots: Roots,
        events: EventCalls | None = None,
        restart_seconds: float = 30.0,
        slow_seconds: float = 30.0,
        own_dev: Path = Path("/dev"),
        access: Access = NOTHING_SET,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._root = driver_root
        self._roots = roots
        self._calls = events
        self._restart_seconds = restart_seconds
        self._slow_seconds = slow_seconds
        self._places = LibraryPlaces(own_dev=own_dev, host_dev=roots.dev, access=access)
        self._library: Library | None = None
        self._started: Surroundings | None = None
        self._started_at = 0.0
        self._starts_in_vain = 0
        self._trouble_at = math.inf
        self._strangers = False
        """Some GPUs have never told their UUID."""
        self._events: EventWatch | None = None
        self._load = ""
        self._gone = False
        self._epoch = 0
        self._known: dict[str, _Known] = {}
        self._versions = Versions()
        self._caps: dict[str, int] = {}
        self._last: tuple[Gpu, ...] = ()
        self._numbered = False
        """All GPUs were read since the library's start, so an index identifies a GPU."""
        self._next = 0
        """The index at which the next look begins."""
        self._hurried = False
        self._samples = Samples(lambda index: self._reading(index, []), gone=self._driver_gone)

    @property
    def progress(self) -> tuple[str, float]:
        """The call in progress or '', and when it began (monotonic seconds). Other threads may read it."""
        return self._library.progress if self._library else ("", 0.0)

    def look(self) -> NvmlView:
        """Reads everything now. It never raises because of the driver: `unavailable` of the view has the cause."""
        around = surroundings(self._roots)
        if self._load and not around.load:  # unloaded: the next load is a new one
            self._load, self._gone, self._last = "", True, ()
        reason = ""
        for _ in range(2):  # after a reload of the driver, ask again at once
            errors: list[str] = []
            try:
                self._start_anew_when_due(around, errors)
                self._start(around)
                return self._view(errors)
            except NvmlSilentError as error:
                return self._nothing(str(error), gpus=unanswered(self._last))
            except NvmlUnavailableError as error:
                return self._nothing(str(error))
            except DriverGoneError as error:
                reason = str(error)
                self._gone = True
                try:
                    self._stop()
                except NvmlSilentError as hung:
                    return self._nothing(str(hung), gpus=unanswered(self._last))
        return self._nothing(f"the driver is being reloaded: {reason}")

    def _nothing(self, reason: str, *, gpus: tuple[Gpu, ...] = ()) -> NvmlView:
        self._last = gpus
        return NvmlView(
            gpus=gpus,
            driver_version=self._versions.driver if gpus else "",
            cuda_version=self._versions.cuda if gpus else "",
            epoch=self._epoch,
            driver_load=self._load,
            unavailable=reason,
        )

    def sample(self, *, enough: Callable[[], bool] = lambda: False) -> tuple[GpuSample, ...]:
        """Telemetry of the GPUs of the last look and their MIG devices; `enough` as in `Samples.take`."""
        return self._samples.take(self._last, enough=enough) if self._started is not None else ()

    def hurry(self) -> None:
        """Makes a look in progress end after the current GPU. Another thread calls this before `close`."""
        self._hurried = True

    def close(self) -> None:
        """Stops the library, unless the driver hangs."""
        try:
            self._stop()
        except NvmlSilentError as error:
            logger.warning("nvml", extra={"error": str(error)})

    # Start and stop

    def _outdated(self, around: Surroundings) -> bool:
        if around != self._started:
            return True
        # a library that was started before a reset of a GPU never sees that GPU again: only a new start does
        troubled = self._strangers or any(
            not g.state.known or _BACK_AFTER_A_START & dict(g.state.failures).keys() for g in self._last
        )
        deaf = self._events is not None and self._events.ended
        if not troubled and not deaf:
            self._starts_in_vain, self._trouble_at = 0, math.inf
            return False
        self._trouble_at = min(self._trouble_at, self._clock())
        # each try doubles the pause: events of the other GPUs are missed during a start
        pause = self._restart_seconds * min(2**self._starts_in_vain, LONGEST_RESTARTS)
        if self._clock() - max(self._started_at, self._trouble_at) < pause:
            return False
        self._starts_in_vain += 1
        return True

    def _start_anew_when_due(self, around: Surroundings, errors: list[str]) -> None:
        if self._started is None or not self._outdated(around):
            return
        try:
            self._stop()
        except NvmlSilentError as hung:  # keep the running library: most GPUs still answer
            errors.append(str(hung))
            self._started_at = self._clock()

    def _start(self, around: Surroundings) -> None:
        if self._started is not None:
            return
        library = self._library = nvml.load(self._root, access=self._places.access, clock=self._clock)
        try:
            library.ask("nvmlInitWithFlags", nvml.INIT_NO_GPUS)
        except (DriverGoneError, NvmlCallError) as error:
            code = getattr(error.__cause__, "value", 0)
            why = nvml.why_not(error, code, self._places)
            if self._last and code not in nvml.NO_DRIVER and around.load == self._load:
                raise NvmlSilentError(why) from error
            raise NvmlUnavailableError(why) from error
        before = self._epoch
        self._count_loads(around)
        if self._epoch != before:
            self._versions = Versions()
        self._started, self._started_at = around, self._clock()
        self._numbered = False
        for known in self._known.values():
            known.facts, known.link_states = None, None
        logger.info("nvml started", extra={"library": library.path, "epoch": self._epoch})
        self._listen(library)

    def _count_loads(self, around: Surroundings) -> None:
        """Counts loads of the driver. A new start of the library is not a load: it mends no GPU."""
        known = bool(around.load and self._load)
        if not self._epoch or (around.load != self._load if known else self._gone):
            self._epoch += 1
        self._gone = False
        self._load = around.load or self._load

    def _stop(self) -> None:
        if self._events is not None:
            if not self._events.stop(seconds=CLOSE_SECONDS):
                raise NvmlSilentError("NVML hangs: the wait for events does not return")
            self._events = None
        if self._started is not None and self._library is not None:
            self._started = None
            try:
                self._library.ask("nvmlShutdown")
            except (DriverGoneError, NvmlCallError) as error:
                logger.info("nvml shutdown", extra={"error": str(error)})

    def _listen(self, library: Library) -> None:
        """Listens for events. Failures without an event are found by the looks."""
        if self._calls is None:
            return
        calls, epoch, load = self._calls, self._epoch, self._load

        def deliver(event: XidEvent) -> None:
            # an event may arrive before the first look at this load
            calls.xid(replace(event, epoch=epoch, driver_load=load))

        self._events = listen(library, deliver=deliver, wake=calls.wake)

    # A look

    def _reading(self, index: int, errors: list[str]) -> Reading:
        assert self._library is not None
        of = f"GPU {index}"
        handle = self._library.ask("nvmlDeviceGetHandleByIndex", index, of=of)
        return Reading(self._library, handle, of=of, errors=errors)

    def _view(self, errors: list[str]) -> NvmlView:
        assert self._library is not None
        try:
            count = self._library.ask("nvmlDeviceGetCount")
        except NvmlCallError as error:
            raise NvmlSilentError(f"NVML does not answer: {error}") from error
        self._versions.read(self._library, errors)
        self._caps = caps = cap_numbers(mig_minors(self._roots)) or self._caps
        self._strangers = False
        nameless: dict[int, NvmlCallError] = {}
        found = self._gpus(count, caps, errors, nameless)
        found += self._recognised(nameless, found)
        ends = {uuid: known.link_ends for uuid, known in self._known.items()}
        self._last = with_links(sorted(found, key=lambda gpu: gpu.index), ends)
        return NvmlView(
            gpus=self._last,
            driver_version=self._versions.driver,
            cuda_version=self._versions.cuda,
            epoch=self._epoch,
            driver_load=self._load,
            errors=tuple(dict.fromkeys(errors))[:MAX_ERRORS],
        )

    def _gpus(
        self, count: int, caps: dict[str, int], errors: list[str], nameless: dict[int, NvmlCallError]
    ) -> list[Gpu]:
        """The GPUs that tell their UUID. When the time of a look is used up, the remaining GPUs stay as they were."""
        found: list[Gpu] = []
        before = {gpu.index: gpu for gpu in self._last} if self._numbered else {}
        first = self._next if self._next < count else 0
        following: int | None = None
        end = self._clock() + self._slow_seconds
        for n in range(count):
            index = (first + n) % count
            late = n > 0 and (self._hurried or self._clock() >= end)
            if late and index in before:
                gpu = before[index]
                found.append(replace(gpu, state=replace(gpu.state, asked=False)))
                following = index if following is None else following
            elif not self._hurried and (gpu_now := self._gpu(index, caps, errors, nameless)):
                found.append(gpu_now)
        self._next = following or 0
        if following is not None:
            errors.append(
                f"NVML is slow: reading {count} GPUs takes more than {self._slow_seconds:g} s; "
                "the next look begins with the GPUs that were not read"
            )
        self._numbered = self._numbered or not nameless
        return found

    def _gpu(
        self, index: int, caps: dict[str, int], errors: list[str], nameless: dict[int, NvmlCallError]
    ) -> Gpu | None:
        """Reads one GPU. None if it does not tell its UUID: then its error is put into `nameless`."""
        before: Gpu | None = None
        try:
            reading = self._reading(index, errors)
            uuid = reading.ask("nvmlDeviceGetUUID")
            known = self._known.setdefault(uuid, _Known())
            before = next((gpu for gpu in self._last if gpu.uuid == uuid), None)
            before = before or known.facts or Gpu(uuid=uuid, index=index, minor=None, pci_address="")
            return self._read(reading, index, known, before=before, caps=caps)
        except (NvmlCallError, DriverGoneError) as error:
            errors.append(str(error))
            mine = self._of_one(error)
        if before is None:
            nameless[index] = mine
            return None
        return replace(before, index=index, state=of_error(mine))

    def _driver_gone(self) -> bool:
        return self._library is None or self._library.gone

    def _of_one(self, error: NvmlCallError | DriverGoneError) -> NvmlCallError:
        """The error of a call if it concerns one GPU only. Raises DriverGoneError if the driver is gone for all."""
        if isinstance(error, NvmlCallError):
            return error
        if self._driver_gone():
            raise error
        return NvmlCallError(nvml.UNKNOWN, str(error))

    def _recognised(self, nameless: dict[int, NvmlCallError], found: list[Gpu]) -> list[Gpu]:
        """Matches GPUs that do not tell their UUID with GPUs of the last look that are missing now.

        The index alone is not enough: the next start of the library may number GPUs in another order.
        """
        answered = {gpu.uuid for gpu in found}
        functions = self._started.functions if self._started else frozenset()
        missing = [
            gpu
            for gpu in self._last
            if gpu.uuid not in answered and (not functions or not gpu.pci_address or gpu.pci_address in functions)
        ]
        recognised = []
        for index, error in nameless.items():
            gpu = next((m for m in missing if m.index == index), missing[0] if missing else None)
            if gpu is None:
                self._strangers |= error.code != nvml.NO_PERMISSION
                continue
            missing.remove(gpu)
            recognised.append(replace(gpu, index=index, state=of_error(error)))
        return recognised

    def _read(self, reading: Reading, index: int, known: _Known, *, before: Gpu, caps: dict[str, int]) -> Gpu:
        facts = known.facts
        if facts is None:
            facts = reading.facts(uuid=before.uuid, index=index, numa_node=partial(numa_node, self._roots))
            if reading.failed:  # the next look may read the rest
                facts = filled(facts, before)
            else:
                known.facts = facts
        reading.failed = False
        mode = reading.mig_mode()
        if reading.failed:
            mode = before.mig_mode
        memory = facts.memory_mib
        migs = reading.migs(minor=facts.minor, memory_mib=memory, caps=caps, before=before.migs) if mode else ()
        states = reading.link_states()
        if states is not None and states != known.link_states and (ends := reading.link_ends(states)) is not None:
            known.link_states, known.link_ends = states, ends
        return replace(facts, index=index, mig_mode=mode, migs=migs, state=reading.state())
