"""Repeated XIDs are passed on at most every 0.1 seconds, and logged at most once a minute."""

import logging
from dataclasses import replace

import pytest
from device_agent.nvml.model import XidEvent
from device_agent.nvml.storms import Storms

EVENT = XidEvent(uuid="GPU-0", xid=79, at=100.0, epoch=1)


def test_a_repeated_xid_is_passed_on_once() -> None:
    storms = Storms()
    burst = [replace(EVENT, at=100.0 + n / 1000, xid=xid) for n in range(50) for xid in (79, 13)]
    assert [event.xid for event in burst if storms.is_news(event)] == [79, 13]
    assert storms.is_news(replace(EVENT, uuid="GPU-1", at=100.05)), "the same XID of another GPU"
    assert storms.is_news(replace(EVENT, gi=1, at=100.05)), "of another part of the GPU"
    assert storms.is_news(replace(EVENT, epoch=2, at=100.05)), "of another load of the driver"
    assert not storms.is_news(replace(EVENT, at=100.09))
    assert storms.is_news(replace(EVENT, at=100.2))


def test_a_repeated_xid_is_logged_once_a_minute_per_gpu(caplog: pytest.LogCaptureFixture) -> None:
    storms = Storms()
    with caplog.at_level(logging.INFO):
        for second in range(61):
            assert storms.is_news(replace(EVENT, at=100.0 + second))
        storms.is_news(replace(EVENT, at=100.0, uuid="GPU-1"))
    assert [record.gpu for record in caplog.records] == ["GPU-0", "GPU-0", "GPU-1"]
