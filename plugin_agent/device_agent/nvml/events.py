"""Listens for the driver's events (XIDs and others) in a thread of its own, which waits inside the driver."""

import contextlib
import ctypes
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from device_agent.nvml.library import TIMEOUT, DriverGoneError, Library, NvmlCallError
from device_agent.nvml.model import XidEvent

logger = logging.getLogger(__name__)

XID: Final = 0x8
_WORTH_A_LOOK: Final = 0x2 | 0x100 | 0x4000 | 0x8000
"""nvmlEventType* of nvml.h beside XIDs: DoubleBitEccError, MigConfigChange, GpuUnavailableError, GpuRecoveryAction.

Only types that the GPU supports are registered; older drivers know fewer."""

_WAIT_MS: Final = 500
_PAUSE_SECONDS: Final = 0.2
"""Pause after a failed wait: while a GPU is lost, each wait fails at once."""
_NO_INSTANCE: Final = 0xFFFFFFFF


def listen(library: Library, *, deliver: Callable[[XidEvent], None], wake: Callable[[], None]) -> "EventWatch | None":
    """Starts to listen to all GPUs that have events. None when that is not possible; the cause is logged."""
    try:
        event_set = library.ask("nvmlEventSetCreate")
        count = library.ask("nvmlDeviceGetCount")
    except (NvmlCallError, DriverGoneError) as error:  # the next look reports the cause
        logger.warning("nvml events are not available", extra={"error": str(error)})
        return None
    uuids: dict[int, str] = {}
    for index in range(count):
        of = f"GPU {index}"
        try:
            handle = library.ask("nvmlDeviceGetHandleByIndex", index, of=of)
            uuid = library.ask("nvmlDeviceGetUUID", handle, of=of)
            types = library.ask("nvmlDeviceGetSupportedEventTypes", handle, of=of)
            try:
                library.ask("nvmlDeviceRegisterEvents", handle, types & (XID | _WORTH_A_LOOK), event_set, of=of)
            except NvmlCallError:  # XIDs alone are better than no events
                library.ask("nvmlDeviceRegisterEvents", handle, XID, event_set, of=of)
        except (NvmlCallError, DriverGoneError) as error:
            logger.warning("nvml events of one GPU are not available", extra={"error": str(error)})
        else:
            uuids[ctypes.cast(handle, ctypes.c_void_p).value or 0] = uuid
    return EventWatch(library, event_set, uuids=uuids, deliver=deliver, wake=wake)


class EventWatch:
    """Waits for the events of one event set. The callbacks run in its thread.

    `uuids`: address of a GPU's handle -> UUID. `deliver` gets each XID; `wake` is called when a look may show more.
    """

    def __init__(
        self,
        library: Library,
        event_set: Any,
        *,
        uuids: Mapping[int, str],
        deliver: Callable[[XidEvent], None],
        wake: Callable[[], None],
    ) -> None:
        # its own object: `Library.progress` belongs to one thread
        self._library = Library(library.module, path=library.path)
        self._set = event_set
        self._uuids = uuids
        self._deliver = deliver
        self._wake = wake
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether its thread has ended, for any reason."""
        return not self._thread.is_alive()

    def stop(self, *, seconds: float) -> bool:
        """Ends the thread and frees the event set. False when the thread hangs in the driver: then nothing is freed."""
        self._ended.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        with contextlib.suppress(NvmlCallError, DriverGoneError):  # gone with the driver
            self._library.ask("nvmlEventSetFree", self._set)
        return True

    def _run(self) -> None:
        try:
            self._listen()
        except Exception:
            logger.exception("nvml events: the thread ended")  # a later look sees that and restarts the library
            self._wake()

    def _listen(self) -> None:
        told = 0
        while not self._ended.is_set():
            try:
                event = self._library.ask("nvmlEventSetWait_v2", self._set, _WAIT_MS)
            except DriverGoneError:
                self._wake()
                return
            except NvmlCallError as error:
                if error.code != TIMEOUT:
                    if error.code != told:
                        logger.warning("nvml events: the wait fails", extra={"error": str(error)})
                        self._wake()
                    told = error.code
                    self._ended.wait(_PAUSE_SECONDS)
                continue
            told = 0
            self._take(event)

    def _take(self, event: Any) -> None:
        at = time.monotonic()
        uuid = self._uuids.get(ctypes.cast(event.device, ctypes.c_void_p).value or 0, "")
        if event.eventType == XID and uuid:
            gi = None if event.gpuInstanceId == _NO_INSTANCE else event.gpuInstanceId
            ci = None if event.computeInstanceId == _NO_INSTANCE else event.computeInstanceId
            self._deliver(XidEvent(uuid=uuid, xid=event.eventData, at=at, gi=gi, ci=ci))
        elif event.eventType == XID:
            logger.warning("XID of an unknown GPU", extra={"xid": event.eventData})
        self._wake()
