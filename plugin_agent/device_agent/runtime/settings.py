"""All durations and bounds of the agent's process in one place, so that a test can shorten them."""

from dataclasses import dataclass, fields, replace
from typing import Any


class SettingError(ValueError):
    """An unknown setting, or a value that is not a number."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Settings:
    """Values are seconds, unless a docstring says otherwise."""

    scan_interval: float = 60.0
    """Between scans without a hint. They find what the kernel does not announce."""
    read_deadline: float = 2.0
    """A read of one file that takes longer counts as hanging; the scan goes on without its device."""
    scan_deadline: float = 30.0
    """A longer scan is reported as hanging. It goes on in its thread, and nothing waits for it."""
    hint_coalesce: float = 0.05
    """Uevents within this time lead to one scan."""
    nvml_interval: float = 10.0
    """Between looks at NVIDIA's GPUs without a hint."""
    nvml_deadline: float = 5.0
    """After this the driver counts as hanging. The call goes on in its thread, and nothing waits for it."""
    nvml_slow: float = 30.0
    """The longest look at the GPUs if each call answers, but slowly. The next look reads the remaining GPUs."""
    nvml_first: float = 2.0
    """How long a scan waits for a look. A driver that starts may take longer; a later scan then has its devices."""
    nvml_restart: float = 30.0
    """While a GPU is broken, the library is restarted after this time, then less and less often. Only a restarted
    library sees a GPU again after its reset.
    """
    sample_interval: float = 15.0
    """Between samples of GPU telemetry."""
    config_poll: float = 10.0
    list_coalesce: float = 0.05
    """Changes within this time are one ListAndWatch message: the kubelet rewrites its checkpoint for each message."""
    directory_poll: float = 2.0
    """Between looks at kubelet.sock and our sockets while inotify reports nothing."""
    register_deadline: float = 16.0
    """Longer than the 10 s in which the kubelet dials the plugin inside Register."""
    retry_first: float = 0.1
    retry_max: float = 5.0
    stream_wait: float = 10.0
    """If the kubelet opens no device stream in this time after Register, the resource is registered again."""
    stream_settle: float = 0.1
    """Time for the kubelet to notice that we ended a stream, before we register again."""
    holders_first: float = 1.0
    """How long the first device list waits for the first List answer, so that held ids are known."""
    holders_poll_min: float = 10.0
    holders_poll_max: float = 30.0
    holders_soon: float = 1.0
    """List is asked this long after an Allocate, and a few times at this pace when answers begin to fail."""
    holders_deadline: float = 5.0
    holders_backoff: float = 30.0
    """Pause after RESOURCE_EXHAUSTED: all clients of the node share the rate limit."""
    record_coalesce: float = 0.01
    """A burst of changes in the kubelet's directory is one look at its record."""
    record_wait: float = 1.0
    """How long a registration waits for the record of a kubelet that has just started."""
    record_deadline: float = 5.0
    """A disk that takes longer to give the record is reported; it is read again at the next change."""
    settle_first: float = 1.0
    """How long an id may be in doubt before the kubelet is asked and told again: the record shows most of them."""
    settle_wait: float = 2.1
    """Above `table.usage.SETTLE_SECONDS`: between a list that was sent again and the look at the record."""
    settle_max: float = 300.0
    """Between looks for doubts that stay, such as the surplus ids of an init container."""
    allocatable_poll: float = 30.0
    """Between checks that the kubelet has our devices under our resource's name, not another plugin's."""
    allocatable_deadline: float = 1.0
    """How long a registration waits to learn whether another plugin serves the resource."""
    store_wait: float = 1.0
    """How long a start, and new devices, wait for the node's disk. Then devices are offered without it."""
    store_deadline: float = 30.0
    """After this the disk counts as hanging. The call of the node store goes on in its thread."""
    store_retry: float = 5.0
    """Pause after the disk refused a read or a write."""
    store_look: float = 30.0
    """Between looks whether the node's files are still there: somebody may have removed them."""
    history_pace: float = 60.0
    """The shortest time between two writes of the history to the node's disk."""
    seat_retry: float = 0.5
    """Between tries for a lock that another agent of the node has."""
    seat_settle: float = 0.1
    """From the end of another agent to the look at who holds what it gave out."""
    store_last: float = 0.5
    """How long the process waits for the last write when it ends."""
    sweep_first: float = 3600.0
    """Before the first sweep after a start. By then every agent of the node has touched its files."""
    sweep_interval: float = 86_400.0
    sweep_age: float = 30 * 86_400.0
    """Files that no agent has touched for this long belong to a deleted object."""
    inventory_poll: float = 10.0
    """Between reads of the agent's own inventory: an admin may have cordoned a device, or acknowledged a failure."""
    cordon_look: float = 5.0
    """Between looks at the cordons that other objects' agents keep on the node."""
    report_interval: float = 5.0
    """The shortest time between two writes of the inventory."""
    report_first: float = 1.0
    """The first write comes at a random moment within this time, because a rollout starts many agents at once."""
    report_wait: float = 35.0
    """How long a new agent waits with its first report while it has found nothing or its driver has not answered."""
    report_spread: float = 30.0
    """After an outage of the API server the first write comes at a random moment within this time."""
    report_deadline: float = 10.0
    heartbeat: float = 600.0
    report_bytes: int = 256 * 1024
    healthy_within: float = 10.0
    """/healthz fails if the event loop has not run for this long."""
    stop_within: float = 1.8
    """From SIGTERM to the end of the process, even if something hangs."""

    def with_values(self, *texts: str) -> "Settings":
        """These settings with values replaced by `name=number` texts.

        Raises:
            SettingError: the name is unknown, or the value is not a number.
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
                raise SettingError(f"{name}: {number!r} is not a number") from error
        return replace(self, **values)
