"""Takes telemetry of all GPUs in turns. With a slow driver, a turn ends early so that a look need not wait."""

from collections.abc import Callable

from device_agent.nvml.library import DriverGoneError, NvmlCallError
from device_agent.nvml.model import Gpu, GpuSample
from device_agent.nvml.reading import Reading


class Samples:
    """The newest samples of each GPU. `reading`: the calls for a GPU index. `gone`: whether the driver is gone."""

    def __init__(self, reading: Callable[[int], Reading], *, gone: Callable[[], bool]) -> None:
        self._reading = reading
        self._gone = gone
        self._newest: dict[str, tuple[GpuSample, ...]] = {}
        self._first = ""
        """UUID of the first GPU of the next turn."""

    def take(self, gpus: tuple[Gpu, ...], *, enough: Callable[[], bool]) -> tuple[GpuSample, ...]:
        """Samples of the GPUs that answer, and of their MIG devices.

        `enough`: called after each GPU; True ends the turn. The other GPUs keep their older samples, and the next turn
        begins with them.
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
                pass  # the next look reports it
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
