"""The library from its first initialisation to the last: started, asked, started anew when the driver was reloaded.

Everything here blocks and belongs to one thread at a time; `session` gives it one.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from device_agent.discovery.found import Roots
from device_agent.nvml import library as nvml
from device_agent.nvml.events import EventWatch, listen
from device_agent.nvml.library import (
    DriverGoneError,
    Library,
    NvmlCallError,
    NvmlSilentError,
    NvmlUnavailableError,
    Places,
)
from device_agent.nvml.model import Gpu, GpuSample, GpuState, NvmlView, XidEvent
from device_agent.nvml.reading import (
    LINK_TO_GPU,
    LINK_TO_SWITCH,
    LOST,
    RESET,
    LinkEnd,
    Reading,
    cap_numbers,
    filled,
    of_error,
)
from device_agent.nvml.surroundings import Surroundings, mig_minors, numa_node, surroundings

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""For the thread of the events to come back from its wait."""
LONGEST_RESTARTS: Final = 10
"""Times `restart_seconds`: the longest time between two starts of the library while a GPU is in trouble."""
MAX_ERRORS: Final = 32
"""Lines of one look: a driver that fails in one thing often fails in many."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Called in the thread of the events. `wake`: a look is worth while now."""

    xid: Callable[[XidEvent], None]
    wake: Callable[[], None]


@dataclass(slots=True)
class _Known:
    """What was read of a GPU. `facts` and `link_states` None: to be read, the other values are those of before."""

    facts: Gpu | None = None
    link_states: tuple[bool, ...] | None = None
    link_ends: tuple[LinkEnd, ...] = ()


@dataclass(slots=True)
class _Versions:
    """Of the driver, and of CUDA as far as it goes; '' where not told."""

    driver: str = ""
    cuda: str = ""


class Driver:
    """`listeners` None: no events are asked for. `own_dev`: where the library itself opens nodes."""

    def __init__(
        self,
        *,
        driver_root: Path,
        roots: Roots,
        listeners: Listeners | None = None,
        restart_seconds: float = 30.0,
        own_dev: Path = Path("/dev"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._root = driver_root
        self._roots = roots
        self._listeners = listeners
        self._restart_seconds = restart_seconds
        self._places = Places(own_dev=own_dev, host_dev=roots.dev)
        self._library: Library | None = None
        self._started: Surroundings | None = None
        self._started_at = 0.0
        self._starts_in_vain = 0
        self._trouble_at = math.inf
        self._strangers = False
        """There are GPUs that have never said who they are."""
        self._events: EventWatch | None = None
        self._load = ""
        self._gone = False
        self._epoch = 0
        self._known: dict[str, _Known] = {}
        self._versions = _Versions()
        self._caps: dict[str, int] = {}
        self._last: tuple[Gpu, ...] = ()

    @property
    def doing(self) -> str:
        """The call in progress; asked from other threads."""
        return self._library.doing if self._library else ""

    def look(self) -> NvmlView:
        """Everything, as it is now. Never raises for what a driver does."""
        around = surroundings(self._roots)
        if self._load and not around.load:  # unloaded: whatever comes is another load
            self._load, self._gone, self._last = "", True, ()
        reason = ""
        for _ in range(2):  # a driver that was reloaded under us is asked anew at once
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
        return self._nothing(f"the driver is being loaded anew: {reason}")

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

    def sample(self) -> tuple[GpuSample, ...]:
        """Telemetry of the GPUs of the last look and their MIG devices; of those that answer."""
        samples: list[GpuSample] = []
        if self._started is None:
            return ()
        for gpu in self._last:
            try:
                reading = self._reading(gpu.index, [])
                samples.append(reading.sample(gpu.uuid))
                if gpu.mig_mode:
                    samples += reading.mig_samples()
            except NvmlCallError:
                continue  # its state tells
            except DriverGoneError:
                if self._library is None or self._library.gone:
                    return ()
        return tuple(samples)

    def close(self) -> None:
        """Lets go of the driver."""
        try:
            self._stop()
        except NvmlSilentError as error:
            logger.warning("nvml", extra={"error": str(error)})

    # Start and stop

    def _outdated(self, around: Surroundings) -> bool:
        if around != self._started:
            return True
        # a GPU that was reset is lost to who had it before: only a new start tells whether it is back
        troubled = self._strangers or any(
            not g.state.known or {LOST, RESET} & dict(g.state.failures).keys() for g in self._last
        )
        deaf = self._events is not None and self._events.ended
        if not troubled and not deaf:
            self._starts_in_vain, self._trouble_at = 0, math.inf
            return False
        self._trouble_at = min(self._trouble_at, self._clock())
        # more and more seldom: during a start nobody hears the events of the other GPUs
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
        except NvmlSilentError as hung:  # then it goes on with what it has: most GPUs answer
            errors.append(str(hung))
            self._started_at = self._clock()

    def _start(self, around: Surroundings) -> None:
        if self._started is not None:
            return
        library = self._library = nvml.load(self._root)
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
            self._versions = _Versions()
        self._started, self._started_at = around, self._clock()
        for known in self._known.values():
            known.facts, known.link_states = None, None
        logger.info("nvml started", extra={"library": library.path, "epoch": self._epoch})
        self._listen(library)

    def _count_loads(self, around: Surroundings) -> None:
        """A start of ours alone is no load of the driver: what broke a GPU is still there."""
        known = bool(around.load and self._load)
        if not self._epoch or (around.load != self._load if known else self._gone):
            self._epoch += 1
        self._gone = False
        self._load = around.load or self._load

    def _stop(self) -> None:
        if self._events is not None:
            if not self._events.stop(seconds=CLOSE_SECONDS):
                raise NvmlSilentError("NVML hangs: the wait for events does not come back")
            self._events = None
        if self._started is not None and self._library is not None:
            self._started = None
            try:
                self._library.ask("nvmlShutdown")
            except (DriverGoneError, NvmlCallError) as error:
                logger.info("nvml shutdown", extra={"error": str(error)})

    def _listen(self, library: Library) -> None:
        """Events are a convenience: without them looks alone find what is wrong."""
        if self._listeners is None:
            return
        listeners, epoch, load = self._listeners, self._epoch, self._load

        def deliver(event: XidEvent) -> None:
            # it may overtake the look that tells of this load
            listeners.xid(replace(event, epoch=epoch, driver_load=load))

        self._events = listen(library, deliver=deliver, wake=listeners.wake)

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
        self._read_versions(errors)
        self._caps = caps = cap_numbers(mig_minors(self._roots)) or self._caps
        self._strangers = False
        nameless: dict[int, NvmlCallError] = {}
        found = [gpu for index in range(count) if (gpu := self._gpu(index, caps, errors, nameless))]
        found += self._recognised(nameless, found)
        self._last = tuple(self._with_links(sorted(found, key=lambda gpu: gpu.index)))
        return NvmlView(
            gpus=self._last,
            driver_version=self._versions.driver,
            cuda_version=self._versions.cuda,
            epoch=self._epoch,
            driver_load=self._load,
            errors=tuple(dict.fromkeys(errors))[:MAX_ERRORS],
        )

    def _read_versions(self, errors: list[str]) -> None:
        """Once for each load of the driver.

        The older call for CUDA's: its successor asks libcuda.so.1, which a container with the driver capability
        `utility` alone has not, nor a process whose library comes from another root (nvml.h).
        """
        told = self._versions
        told.driver = told.driver or self._told("nvmlSystemGetDriverVersion", errors) or ""
        if not told.cuda and (number := self._told("nvmlSystemGetCudaDriverVersion", errors)):
            told.cuda = f"{number // 1000}.{number % 1000 // 10}"

    def _told(self, function: str, errors: list[str]) -> Any:
        """What the library says of the whole node, None where it says nothing."""
        assert self._library is not None
        try:
            return self._library.ask(function)
        except NvmlCallError as error:
            if not error.says_nothing_there:
                errors.append(str(error))
            return None

    def _gpu(
        self, index: int, caps: dict[str, int], errors: list[str], nameless: dict[int, NvmlCallError]
    ) -> Gpu | None:
        """A GPU that says which it is; None, and its error in `nameless`, for one that does not."""
        before: Gpu | None = None
        try:
            reading = self._reading(index, errors)
            uuid = reading.ask("nvmlDeviceGetUUID")
            known = self._known.setdefault(uuid, _Known())
            before = next((gpu for gpu in self._last if gpu.uuid == uuid), None)
            before = before or known.facts or Gpu(uuid=uuid, index=index, minor=-1, pci_address="")
            return self._read(reading, index, known, before=before, caps=caps)
        except (NvmlCallError, DriverGoneError) as error:
            errors.append(str(error))
            mine = self._of_one(error)
        if before is None:
            nameless[index] = mine
            return None
        return replace(before, index=index, state=of_error(mine))

    def _of_one(self, error: NvmlCallError | DriverGoneError) -> NvmlCallError:
        """What one GPU said. Raises DriverGoneError when that holds for all."""
        if isinstance(error, NvmlCallError):
            return error
        if self._library is None or self._library.gone:
            raise error
        return NvmlCallError(nvml.UNKNOWN, str(error))

    def _recognised(self, nameless: dict[int, NvmlCallError], found: list[Gpu]) -> list[Gpu]:
        """GPUs in trouble, that do not say which they are, as those that were there and are not accounted for.

        A number alone is no identity: the next start of the library may count them in another order.
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
            if reading.failed:  # may be told the next time
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

    def _with_links(self, gpus: list[Gpu]) -> list[Gpu]:
        """A link to a GPU that this process does not see leads nowhere."""
        by_address = {gpu.pci_address: gpu.uuid for gpu in gpus if gpu.pci_address}
        linked = []
        for gpu in gpus:
            links: dict[str, int] = {}
            switched = 0
            known = self._known.get(gpu.uuid)
            for end in known.link_ends if known else ():
                peer = by_address.get(end.address)
                if end.kind == LINK_TO_SWITCH:
                    switched += 1
                elif end.kind == LINK_TO_GPU and peer:
                    links[peer] = links.get(peer, 0) + 1
            linked.append(replace(gpu, nvlinks=links, via_switch=switched))
        return linked


def unanswered(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """GPUs as they were, their state not known."""
    return tuple(replace(gpu, state=GpuState(known=False)) for gpu in gpus)
