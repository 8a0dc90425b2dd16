"""What a check has read. None: the user may not read it, so nothing is said about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from device_agent.contract import names

from kubectl_devices.model.fleet import Inventory

Object = Mapping[str, Any]
Objects = tuple[Object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """`now`: on the clock of the API server. `kinds_missing`: plurals of our kinds that the API server does not serve.

    `lease` and `account` with `…_read`: None and True means that there is none.
    """

    now: datetime
    namespace: str
    lease_name: str
    account_name: str
    kinds_missing: tuple[str, ...] = ()
    crds: Objects | None = None
    deployments: Objects | None = None
    lease: Object | None = None
    lease_read: bool = False
    account: Object | None = None
    account_read: bool = False
    configs: Objects | None = None
    daemonsets: Objects | None = None
    pods: Objects | None = None
    events: Objects | None = None
    inventories: tuple[Inventory, ...] | None = None
    nodes: Objects | None = None

    @property
    def agents(self) -> Objects:
        """The pods of agents."""
        return tuple(filter(of_a_config, self.pods or ()))


def of_a_config(raw: Object) -> bool:
    """Whether the operator has made it for a DevicePluginConfig."""
    return names.LABEL_CONFIG in raw["metadata"].get("labels", {})


def moment(text: str | None) -> datetime | None:
    """RFC 3339; None if there is no time, or no readable one."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except ValueError:
        return None


def condition(raw: Object, kind: str) -> Object:
    """The condition of this type; {} if there is none."""
    return next((c for c in raw.get("status", {}).get("conditions") or () if c.get("type") == kind), {})
