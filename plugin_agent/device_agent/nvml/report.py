"""What the agent tells about GPUs beside serving them, where the admin asks for it: telemetry and node labels.

Neither can hold up or break what pods depend on: samples come from the NVML thread, files go through a thread of their
own, and what fails is logged once and tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from device_agent.contract.document import Document
from device_agent.contract.values import dataclass
from device_agent.nvml.metrics import GpuTelemetry
from device_agent.nvml.model import GpuSample, NvmlView
from device_agent.nvml.node_features import FeatureFile, labels, machine
from device_agent.runtime.exposition import Registry
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.table.snapshot import TableSnapshot

logger = logging.getLogger(__name__)

_WRITE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an admin has switched on. `features_dir`: node-feature-discovery's directory, None: no labels."""

    metrics: bool = False
    features_dir: Path | None = None


NOTHING_WANTED: Final = Wanted()


class GpuReport:
    """Does nothing that is not wanted. `config`: the DevicePluginConfig's name, which the label file is called by."""

    def __init__(self, wanted: Wanted, *, registry: Registry, config: str, sys: Path, sample_interval: float) -> None:
        self._telemetry = GpuTelemetry(interval=sample_interval) if wanted.metrics else None
        if self._telemetry is not None:
            registry.register(self._telemetry)
        directory = wanted.features_dir
        self._file = FeatureFile(directory, config=config or "local") if directory else None
        self._sys = sys
        self._worker = Worker("features")
        self._turn = asyncio.Lock()
        self._told = ""

    def publish(self, snapshot: TableSnapshot) -> None:
        """The table changed: who holds what now."""
        if self._telemetry is not None:
            self._telemetry.publish(snapshot)

    async def sample(self, take: Callable[[], Awaitable[Sequence[GpuSample]]]) -> None:
        """Takes samples for ever, or returns at once when none are wanted."""
        if self._telemetry is not None:
            await self._telemetry.run(take)

    async def scanned(self, document: Document, view: NvmlView | None, snapshot: TableSnapshot) -> None:
        """After each scan: the label file follows the view. It stays as it is while the driver gives no answer.

        `view` None: there is no answer yet. Without an entry that asks for NVIDIA devices the file is removed.
        """
        file = self._file
        if view is None and not any(entry.nvml for resource in document.resources for entry in resource.devices):
            view = NvmlView()
        if file is None or view is None or view.unavailable:
            return
        seen = view
        try:
            async with self._turn:
                await self._worker.call(lambda: self._keep(file, seen, snapshot), seconds=_WRITE_SECONDS)
        except (TimeoutError, WorkerBusyError):
            problem = "the disk hangs"
        except OSError as error:
            problem = error.strerror or str(error)  # its text names a temporary file, another one each time
        except Exception as error:
            # a defect here is no reason for a task that is started again for ever, with one more at each scan
            problem = repr(error)
            if problem != self._told:
                logger.exception("node features")
        else:
            problem = ""
        if problem and problem != self._told:
            logger.warning("node features are not written", extra={"error": problem, "file": str(file.path)})
        self._told = problem

    def _keep(self, file: FeatureFile, view: NvmlView, snapshot: TableSnapshot) -> None:
        found = labels(view, snapshot, machine=machine(self._sys))
        if file.keep(found, now=datetime.now(tz=UTC)):
            logger.info("node features", extra={"file": str(file.path), "labels": len(found)})
