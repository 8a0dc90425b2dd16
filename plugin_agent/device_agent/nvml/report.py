"""Telemetry and node labels of GPUs, if the admin switched them on.

They never delay or break the serving of devices. Samples come from the NVML thread, and a thread of its own writes the
label file. A failure is logged once and tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from device_agent.contract.document import Document
from device_agent.nvml.metrics import GpuTelemetry
from device_agent.nvml.model import GpuSample, NvmlView
from device_agent.nvml.node_features import FeatureFile, labels, machine
from device_agent.nvml.setup import Wanted, asks
from device_agent.runtime.exposition import Registry
from device_agent.runtime.worker import Worker, WorkerBusyError
from device_agent.table.snapshot import TableSnapshot

logger = logging.getLogger(__name__)

_WRITE_SECONDS: Final = 5.0


class GpuReport:
    """Reports what `wanted` asks for. `config`: the DevicePluginConfig's name, which is part of the file's name."""

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
        """Takes the table's new state, for the holders in the telemetry."""
        if self._telemetry is not None:
            self._telemetry.publish(snapshot)

    async def sample(self, take: Callable[[], Awaitable[Sequence[GpuSample]]]) -> None:
        """Takes samples for ever. Without telemetry it returns at once."""
        if self._telemetry is not None:
            await self._telemetry.run(take)

    async def scanned(self, document: Document, view: NvmlView | None, snapshot: TableSnapshot) -> None:
        """Updates the label file after a scan. The file stays as it is while the driver gives no answer.

        `view` None: the driver has not answered yet. If no entry asks for NVIDIA devices, the file is removed.
        """
        file = self._file
        if view is None and not asks(document):
            view = NvmlView()
        if file is None or view is None or view.unavailable:
            return
        seen = view
        try:
            async with self._turn:
                await self._worker.call(lambda: self._keep(file, seen, snapshot), seconds=_WRITE_SECONDS)
        except (TimeoutError, WorkerBusyError):
            problem = "writing takes too long: check the disk of the node"
        except OSError as error:
            problem = error.strerror or str(error)  # not str(error): it names a temporary file, so it differs each time
        except Exception as error:
            # a defect that is raised would have this task restarted for ever, one more with each scan
            problem = repr(error)
            if problem != self._told:
                logger.exception("a defect in making node labels")
        else:
            problem = ""
        if problem and problem != self._told:
            logger.warning("node labels are not written", extra={"error": problem, "file": str(file.path)})
        self._told = problem

    def _keep(self, file: FeatureFile, view: NvmlView, snapshot: TableSnapshot) -> None:
        found = labels(view, snapshot, machine=machine(self._sys))
        if file.keep(found, now=datetime.now(tz=UTC)):
            logger.info("node labels written", extra={"file": str(file.path), "labels": len(found)})
