"""Telemetry of all GPUs, in turns: with a slow driver a turn may reach only some, so that no look is kept waiting."""

from collections.abc import Callable

from device_agent.nvml.library import DriverGoneError, NvmlCallError
from device_agent.nvml.model import Gpu, GpuSample
from device_agent.nvml.reading import Reading


class Samples:
    """The newest of each GPU. `reading`: the calls about the GPU with an index; `gone`: there is no driver any more."""

    def __init__(self, reading: Callable[[int], Reading], *, gone: Callable[[], bool]) -> None:
        self._reading = reading
        self._gone = gone
        self._newest: dict[str, tuple[GpuSample, ...]] = {}
        self._first = ""
        """UUID of the GPU that the next turn begins with."""

    def take(self, gpus: tuple[Gpu, ...], *, enough: Callable[[], bool]) -> tuple[GpuSample, ...]:
        """Of those that answer, and of their MIG devices. `enough`: asked after each GPU, whether the turn is over.

        GPUs that had no turn are as they were before; the next turn begins with them.
        """
        start = next((n for n, gpu in enumerate(gpus) if gpu.uuid == self._first), 0)
        self._newest = {gpu.uuid: self._newest[gpu.uuid] for gpu in gpus if gpu.uuid in self._newest}
        self._first = ""
        turn = (*gpus[start:], *gpus[:start])
        for gpu, following in zip(turn, (*turn[1:], None), strict=True):
            self._newest[gpu.uuid] = ()
            try:
                self._newest[gpu.uuid] = self._of(gpu)
            except NvmlCallError:
                pass  # its state tells
            except DriverGoneError:
                if self._gone():
                    self._newest.clear()
                    return ()
            if following is not None and enough():
                self._first = following.uuid
                break
        return tuple(sample for gpu in gpus for sample in self._newest.get(gpu.uuid, ()))

    def _of(self, gpu: Gpu) -> tuple[GpuSample, ...]:
        reading = self._reading(gpu.index)
        sample = reading.sample(gpu.uuid)
        return (sample, *(reading.mig_samples() if gpu.mig_mode else ()))
