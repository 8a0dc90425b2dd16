"""Every setting of the operator: name, meaning, default. The flags and environment variables come from this list."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_origin

from device_operator.runtime import errors

ENV_PREFIX: Final = "DEVICE_OPERATOR_"
_SERVICE_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _setting(default: Any, text: str, *, flag: str = "", group: str = "run", choices: Sequence[str] = ()) -> Any:
    return field(default=default, metadata={"help": text, "flag": flag, "group": group, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All durations are seconds. The flag of a field is its name with dashes. Group render: also flags of
    the command `render`.
    """

    namespace: str = _setting(
        "", "namespace of DaemonSets, ConfigMaps and the Lease (default: the pod's own)", group="render"
    )
    agent_image: str = _setting("", "image of the agent (required)", group="render")
    agent_image_pull_policy: str = _setting(
        "IfNotPresent", "pull policy of the agent's image", group="render", choices=("Always", "IfNotPresent", "Never")
    )
    agent_image_pull_secrets: tuple[str, ...] = _setting(
        (),
        "name of a pull secret in the namespace; may be repeated (environment: comma-separated)",
        flag="agent-image-pull-secret",
        group="render",
    )
    agent_service_account: str = _setting("device-agent", "ServiceAccount of the agent's pods", group="render")

    agent_selinux_type: str = _setting(
        "container_device_plugin_t", "SELinux type of the agent's container", group="render"
    )

    kubeconfig: str = _setting("", "path of a kubeconfig (default: in-cluster, else as kubectl finds it)")
    context: str = _setting("", "context of the kubeconfig")
    identity: str = _setting("", "name in the Lease (default: host name and a random suffix)")
    lease_name: str = _setting("device-operator", "name of the Lease that elects the leader")
    lease_duration_seconds: float = _setting(15.0, "a standby waits this long after the last renewal it saw")
    lease_renew_deadline_seconds: float = _setting(10.0, "a leader that cannot renew for this time ends")
    lease_retry_seconds: float = _setting(2.0, "time between two renewals or attempts")
    listen: str = _setting(":8080", "address of /healthz, /readyz and /metrics")
    log_format: str = _setting("text", "format of the log on stderr", choices=("text", "json"))
    log_level: str = _setting("info", "lowest level logged", choices=("debug", "info", "warning", "error"))

    workers: int = _setting(4, "objects reconciled at the same time")
    resync_seconds: float = _setting(300.0, "every object is looked at again after this time")
    backoff_seconds: float = _setting(0.5, "first wait after a failed pass; it doubles")
    backoff_max_seconds: float = _setting(60.0, "longest wait after a failed pass")
    coalesce_seconds: float = _setting(0.2, "changes of nodes, pods and inventories are gathered this long")
    status_seconds: float = _setting(5.0, "least time between two status writes of an object")
    status_holders_seconds: float = _setting(30.0, "least time between two status writes if only holders changed")
    status_refresh_seconds: float = _setting(270.0, "an unchanged status is written again after this time")
    status_bytes_per_second: float = _setting(16384.0, "bytes per second of an object's status writes, on average")
    node_settle_seconds: float = _setting(300.0, "a node counts once it has been Ready for this time")
    pod_stale_seconds: float = _setting(60.0, "a node is Stale if its agent pod is not Ready for this time")
    heartbeat_stale_seconds: float = _setting(1500.0, "a node is Stale if its inventory is not written for this time")
    inventory_grace_seconds: float = _setting(1800.0, "an inventory without node or pool is deleted after this")
    failed_create_seconds: float = _setting(10.0, "least time between two reads of the Events of a DaemonSet or pod")
    request_timeout_seconds: float = _setting(30.0, "one request to the API server")
    watch_idle_seconds: float = _setting(90.0, "a watch without event or bookmark for this time is opened again")
    watch_stale_seconds: float = _setting(300.0, "/healthz fails when a watch gave no sign of life for this time")


def add_arguments(parser: argparse.ArgumentParser, *, group: str | None = None) -> None:
    """A flag for each setting of `group` (None: all)."""
    for f in fields(Settings):
        meta = f.metadata
        if group is not None and meta["group"] != group:
            continue
        options: dict[str, Any] = {
            "dest": f.name,
            "default": argparse.SUPPRESS,
            "help": f"{meta['help']} [{_shown(f.default)}]",
        }
        if meta["choices"]:
            options["choices"] = meta["choices"]
        if _is_list(f.type):
            options["action"] = "append"
        else:
            options["type"] = type(f.default)
        parser.add_argument(f"--{flag_of(f.name)}", **options)


def flag_of(name: str) -> str:
    """The flag (without dashes) of a field."""
    meta = next(f.metadata for f in fields(Settings) if f.name == name)
    return str(meta["flag"] or name.replace("_", "-"))


def variable_of(name: str) -> str:
    """The environment variable of a field."""
    return ENV_PREFIX + flag_of(name).upper().replace("-", "_")


def resolve(
    arguments: Mapping[str, Any],
    *,
    environ: Mapping[str, str] = os.environ,
    namespace_file: Path = _SERVICE_ACCOUNT_NAMESPACE,
) -> Settings:
    """A flag overrides the environment, and that overrides the default.

    Raises:
        errors.UsageError: a variable has a value that its flag would not take, or a duration is not above zero.
    """
    values: dict[str, Any] = {}
    for f in fields(Settings):
        if f.name in arguments:
            given = arguments[f.name]
            values[f.name] = tuple(given) if isinstance(given, list) else given
        elif text := environ.get(variable_of(f.name), ""):
            values[f.name] = _from_text(f.name, text, f.default, f.metadata["choices"])
    for name, value in values.items():
        if isinstance(value, int | float) and not 0 < value < float("inf"):  # nan is neither
            raise errors.UsageError(f"--{flag_of(name)}: {value} must be a number above 0")
    settings = Settings(**values)
    if not (settings.lease_retry_seconds < settings.lease_renew_deadline_seconds < settings.lease_duration_seconds):
        raise errors.UsageError(
            "--lease-retry-seconds must be below --lease-renew-deadline-seconds, "
            "and that below --lease-duration-seconds: otherwise two operators could lead at once"
        )
    if not settings.namespace:
        try:
            found = namespace_file.read_text(encoding="utf-8").strip()
        except OSError:
            found = ""
        settings = Settings(**{**values, "namespace": found or "device-operator"})
    return settings


def _from_text(name: str, text: str, default: object, choices: Sequence[str]) -> object:
    variable = variable_of(name)
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if choices and text not in choices:
        raise errors.UsageError(f"{variable}: {text!r} is none of {', '.join(choices)}")
    if isinstance(default, str):
        return text
    try:
        return type(default)(text)  # type: ignore[call-arg]
    except ValueError as error:
        raise errors.UsageError(f"{variable}: {text!r} is no number") from error


def _is_list(kind: object) -> bool:
    return get_origin(kind) is tuple


def _shown(default: object) -> str:
    return "none" if default in ("", ()) or default is MISSING else str(default)
