"""Every duration and bound of the agent's process in one place, so that a test can shorten each."""

from dataclasses import dataclass, fields, replace
from typing import Any


class SettingError(ValueError):
    """A setting that does not exist or is no number."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Settings:
    """Seconds, where nothing else is said."""

    scan_interval: float = 60.0
    """Between scans that nothing asked for: what the kernel does not announce is found by these."""
    scan_deadline: float = 30.0
    """A scan that takes longer is reported; it goes on in its thread, and nothing waits for it."""
    hint_coalesce: float = 0.05
    """A burst of uevents is one scan."""
    nvml_interval: float = 10.0
    """Between looks at NVIDIA's GPUs that nothing asked for."""
    nvml_deadline: float = 5.0
    """A call that takes longer is a driver that hangs; it goes on in its thread, and nothing waits for it."""
    nvml_slow: float = 30.0
    """A look at the GPUs that takes longer reads the rest of them the next time: each call answers, and is slow."""
    nvml_first: float = 2.0
    """How long a scan waits for a look. A driver that starts may take longer: its devices come with a later scan."""
    nvml_restart: float = 30.0
    """While a GPU is in trouble the library is started anew after this, then less and less often: only then is a GPU
    that was reset seen again."""
    sample_interval: float = 15.0
    """Between samples of GPU telemetry."""
    config_poll: float = 10.0
    list_coalesce: float = 0.05
    """A burst of changes is one ListAndWatch message: the kubelet rewrites its checkpoint for each."""
    directory_poll: float = 2.0
    """Looks at kubelet.sock and our sockets where inotify tells nothing."""
    register_deadline: float = 16.0
    """Above the 10 s in which the kubelet dials the plugin inside Register."""
    retry_first: float = 0.1
    retry_max: float = 5.0
    stream_wait: float = 10.0
    """A kubelet that registered us and opened no device stream in this time is asked again."""
    stream_settle: float = 0.1
    """The kubelet's time to notice that we ended a stream, before we register again."""
    holders_first: float = 1.0
    """How long the first offer waits for the first List, so that held ids are known."""
    holders_poll_min: float = 10.0
    holders_poll_max: float = 30.0
    holders_soon: float = 1.0
    """List is asked this long after an Allocate, and a few times more while the id does not appear."""
    holders_deadline: float = 5.0
    holders_backoff: float = 30.0
    """After RESOURCE_EXHAUSTED: the rate limit is shared with every other client of the node."""
    allocatable_poll: float = 30.0
    """Between looks whether the kubelet has our devices, or those of another plugin under our resource's name."""
    allocatable_deadline: float = 1.0
    """How long a registration waits to learn whether another plugin serves the resource."""
    store_wait: float = 1.0
    """How long a start, and devices that are new, wait for the node's disk; then devices are offered all the same."""
    store_deadline: float = 30.0
    """A call of the node store that takes longer is a disk that hangs; it goes on in its thread."""
    store_retry: float = 5.0
    """After the disk did not give or take what is kept on the node."""
    store_last: float = 0.5
    """How long the end of the process waits for the last write."""
    sweep_first: float = 3600.0
    """After the start, when every agent of the node has had the time to touch its files."""
    sweep_interval: float = 86_400.0
    sweep_age: float = 30 * 86_400.0
    """What no agent has touched for this long is of an object that is gone."""
    acknowledge_poll: float = 15.0
    """While a device waits for an admin's acknowledgement, the inventory is read so often."""
    report_interval: float = 5.0
    """The least time between two writes of the inventory."""
    report_first: float = 1.0
    """The first write comes at a random moment within this time: a rollout starts many agents at once."""
    report_wait: float = 35.0
    """An agent that starts says nothing for so long, while it has found nothing yet or its driver has not answered."""
    report_spread: float = 30.0
    """After an outage of the API server the first write comes at a random moment within this time."""
    report_deadline: float = 10.0
    heartbeat: float = 600.0
    report_bytes: int = 256 * 1024
    healthy_within: float = 10.0
    """/healthz fails when the loop has not turned for this long."""
    stop_within: float = 1.8
    """From SIGTERM to the end of the process, whatever hangs."""

    def with_values(self, *texts: str) -> "Settings":
        """These settings with `name=number` replaced.

        Raises:
            SettingError: unknown name, or no number.
        """
        known = {f.name: f for f in fields(self)}
        values: dict[str, Any] = {}
        for text in texts:
            name, equals, number = text.partition("=")
            if not equals or name not in known:
                raise SettingError(f"{text!r} must read NAME=NUMBER with one of: {', '.join(known)}")
            try:
                values[name] = type(getattr(self, name))(number)
            except ValueError as error:
                raise SettingError(f"{name}: {number!r} is no number") from error
        return replace(self, **values)
