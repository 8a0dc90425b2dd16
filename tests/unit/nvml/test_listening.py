"""Which event types are registered, depending on what a GPU supports."""

import ctypes
from types import SimpleNamespace

import pytest
from device_agent.nvml import events
from device_agent.nvml.library import NOT_SUPPORTED, NvmlCallError

MIG_CHANGED, RECOVERY_ACTION = 0x100, 0x8000


class StubLibrary:
    """A library with two GPUs. `takes`: event types that a registration may name."""

    module = SimpleNamespace()
    path = ""

    def __init__(self, *, supported: int, takes: int) -> None:
        self.supported, self.takes = supported, takes
        self.registered: list[tuple[int, int]] = []
        self.handles = [ctypes.c_void_p(n + 1) for n in range(2)]

    def ask(self, function: str, *arguments: object, of: str = "") -> object:
        match function:
            case "nvmlDeviceGetCount":
                return len(self.handles)
            case "nvmlDeviceGetHandleByIndex":
                return self.handles[int(str(arguments[0]))]
            case "nvmlDeviceGetUUID":
                return f"GPU-{self.handles.index(arguments[0])}"
            case "nvmlDeviceGetSupportedEventTypes":
                return self.supported
            case "nvmlDeviceRegisterEvents":
                handle, types, _ = arguments
                if int(str(types)) & ~self.takes:
                    raise NvmlCallError(NOT_SUPPORTED, "no such events")
                self.registered.append((self.handles.index(handle), int(str(types))))
        return None


class Watched:
    """Takes the place of EventWatch, without a thread."""

    def __init__(self, _library: object, _set: object, *, uuids: dict[int, str], **_: object) -> None:
        self.uuids = uuids


@pytest.mark.parametrize(
    ("supported", "takes", "asked"),
    [
        (0x1F, 0x1F, 0xA),
        (0x1F | MIG_CHANGED | RECOVERY_ACTION, 0xFFFF, 0xA | MIG_CHANGED | RECOVERY_ACTION),
        (0x1F | MIG_CHANGED, 0x1F, 0x8),
    ],
)
def test_supported_event_types_are_registered_and_xids_always(
    monkeypatch: pytest.MonkeyPatch, supported: int, takes: int, asked: int
) -> None:
    monkeypatch.setattr(events, "EventWatch", Watched)
    library = StubLibrary(supported=supported, takes=takes)
    watch = events.listen(library, deliver=lambda _: None, wake=lambda: None)  # type: ignore[arg-type]
    assert library.registered == [(0, asked), (1, asked)]
    assert watch is not None
    assert watch.uuids == {1: "GPU-0", 2: "GPU-1"}  # type: ignore[attr-defined]
