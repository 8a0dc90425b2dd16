"""kopf: the settings that differ from its defaults."""

from device_operator.handlers import make_settings


def test_settings_read_back() -> None:
    settings = make_settings()
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    assert not settings.posting.loggers
    assert settings.watching.chunk_size == 500
    assert settings.queueing.idle_timeout <= 0.5
    assert settings.queueing.worker_limit is None
    assert settings.networking.request_timeout == 30
    assert settings.networking.enforce_retry_after
    assert settings.process.ultimate_exiting_timeout is not None
    assert settings.process.ultimate_exiting_timeout < 30
    assert settings.persistence.finalizer == "device-operator.io/finalizer"
