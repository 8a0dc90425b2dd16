"""How long a registration waits after a failure, on a clock that stands still."""

from pathlib import Path

import pytest
from device_agent.kubelet import registration, sockets
from device_agent.kubelet.registration import (
    KubeletDirectory,
    Registration,
    RegistrationCause,
    RegistrationError,
)
from device_agent.runtime.metrics import Metrics
from device_agent.runtime.settings import Settings
from unit.table.samples import NAME, Steps


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


async def test_refusals_are_tried_again_ever_more_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(registration, "time", clock)
    monkeypatch.setattr(sockets, "life", lambda _: (1, 1))

    async def nothing() -> None:
        return None

    async def refused(*_: object) -> None:
        raise RegistrationError("no")

    made = Registration(
        NAME,
        table=Steps().table,
        directory=KubeletDirectory(tmp_path, poll_seconds=60),
        owner="uid",
        settings=Settings(retry_first=0.5, retry_max=4.0),
        metrics=Metrics(version=""),
        allocatable=nothing,
        recorded=nothing,
        allocated=lambda *_: None,
        changed=lambda: None,
    )
    monkeypatch.setattr(made, "_register", refused)
    delays = []
    for _ in range(6):
        assert made._delay(RegistrationCause.START) == 0
        await made._attempt(RegistrationCause.START)
        delays.append(made._delay(RegistrationCause.START))
        clock.now += delays[-1]
    assert delays == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
