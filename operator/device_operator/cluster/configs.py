"""The DevicePluginConfigs as last seen, each parsed once per generation.

Changes come as events of kopf. kopf does not report an object that was deleted while its watch was down. So all objects
are listed at the start and at every resync; they are few.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from device_agent.contract.status import ConditionStatus, ConditionType, ConfigStatus, read_config_status

from device_operator.cluster.client import Object
from device_operator.cluster.views import moment
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.model import ConfigRef, Pool, Spec
from device_operator.spec.parsing import parse_spec
from device_operator.spec.placement import NodeView, OtherConfig, matches

Held = Callable[[ConfigRef], Iterable[Pool]]
"""The pools of an object's accepted specs (`AcceptedSpecs.held_pools`)."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Config:
    """One object: its JSON without the status, its spec or the problem with it, its status."""

    raw: Object
    spec: Spec | None
    problem: InvalidSpecError | None
    status: ConfigStatus

    @property
    def ref(self) -> ConfigRef:
        return ConfigRef(self.raw["metadata"]["name"], self.raw["metadata"]["uid"])

    @property
    def generation(self) -> int:
        return int(self.raw["metadata"]["generation"])

    @property
    def created(self) -> datetime:
        return moment(self.raw["metadata"].get("creationTimestamp")) or _EPOCH

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.raw["metadata"]

    @property
    def rejected(self) -> bool:
        """Whether the present generation was rejected, by the status of the object."""
        condition = self.status.condition(ConditionType.ACCEPTED)
        return (
            condition is not None
            and condition.status is ConditionStatus.FALSE
            and condition.observed_generation == self.generation
        )


class ConfigStore:
    """By name. Only a newer resourceVersion replaces a known one.

    Objects come from events, lists and answers to our own writes, in any order. A late event does not bring back an
    object that was dropped.
    """

    def __init__(self) -> None:
        self._configs: dict[str, Config] = {}
        self._dropped: set[str] = set()

    def get(self, name: str) -> Config | None:
        return self._configs.get(name)

    def __iter__(self) -> Iterator[Config]:
        return iter(tuple(self._configs.values()))

    def put(self, raw: Object) -> bool:
        """True when a pass is needed: it is new, its generation changed, or its deletion began."""
        meta = raw["metadata"]
        if meta["uid"] in self._dropped:
            return False
        before = self._configs.get(meta["name"])
        if before is not None and before.ref.uid != meta["uid"]:
            self._drop(before)
            before = None
        if before is None:
            self._configs[meta["name"]] = _parsed(raw)
            return True
        if int(meta["resourceVersion"]) < int(before.raw["metadata"]["resourceVersion"]):
            return False
        if before.generation == meta["generation"]:
            self._configs[meta["name"]] = _config(raw, before.spec, before.problem)
            return before.deleting != ("deletionTimestamp" in meta)
        self._configs[meta["name"]] = _parsed(raw)
        return True

    def drop(self, name: str, *, uid: str) -> bool:
        """True when the object with this uid was known."""
        self._dropped.add(uid)
        known = self._configs.get(name)
        if known is None or known.ref.uid != uid:
            return False
        self._drop(known)
        return True

    def _drop(self, config: Config) -> None:
        self._dropped.add(config.ref.uid)
        del self._configs[config.ref.name]

    def replace(self, found: Iterable[Object], *, version: int) -> set[str]:
        """Takes a complete list as of resourceVersion `version`. Returns the names that are new, changed or gone."""
        changed, listed = set(), set()
        for raw in found:
            name = raw["metadata"]["name"]
            listed.add(name)
            if self.put(raw):
                changed.add(name)
        vanished = {
            name
            for name, config in self._configs.items()
            if name not in listed and int(config.raw["metadata"]["resourceVersion"]) <= version
        }
        for name in vanished:
            self._drop(self._configs[name])
        self._dropped.clear()  # events that are still to come are newer than the list
        return changed | vanished

    def others(self, name: str, *, held: Held) -> tuple[OtherConfig, ...]:
        """All but `name`. An object that is being deleted still holds its nodes."""
        return tuple(
            OtherConfig(
                name=other.ref.name,
                uid=other.ref.uid,
                created=other.created,
                held=tuple(held(other.ref)),
                wanted=() if other.spec is None or other.rejected else other.spec.pools,
            )
            for other in sorted(self._configs.values(), key=lambda c: c.ref.name)
            if other.ref.name != name
        )

    def concerned(self, old: NodeView | None, new: NodeView | None, *, held: Held) -> set[str]:
        """The objects with a pool that matches the node before or after its change."""
        nodes = [node for node in (old, new) if node is not None]
        return {
            config.ref.name
            for config in self._configs.values()
            if any(
                matches(pool, node)
                for pool in (*(config.spec.pools if config.spec else ()), *held(config.ref))
                for node in nodes
            )
        }


def _parsed(raw: Object) -> Config:
    try:
        return _config(raw, parse_spec(raw), None)
    except InvalidSpecError as problem:
        return _config(raw, None, problem)


def _config(raw: Object, spec: Spec | None, problem: InvalidSpecError | None) -> Config:
    kept = {key: value for key, value in raw.items() if key != "status"}
    return Config(kept, spec, problem, read_config_status(raw.get("status")))
