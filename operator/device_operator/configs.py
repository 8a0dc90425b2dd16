"""The DevicePluginConfigs as last seen, each parsed once per generation.

They are few. kopf's events bring changes; a list at the start and at every resync brings what those may have
missed: kopf does not report what vanished while its watch was down.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from device_operator.cluster.client import Object
from device_operator.cluster.views import moment
from device_operator.errors import InvalidSpecError
from device_operator.model import Identity, NodeView, OtherConfig
from device_operator.pools import matches
from device_operator.spec import Spec, parse_spec

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Config:
    """One object: its JSON, and its spec or what is wrong with it."""

    raw: Object
    spec: Spec | None
    problem: InvalidSpecError | None

    @property
    def identity(self) -> Identity:
        return Identity(self.raw["metadata"]["name"], self.raw["metadata"]["uid"])

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
    def status(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.raw.get("status") or {}
        return found


class ConfigStore:
    """By name; a newer resourceVersion replaces an older one, never the other way round."""

    def __init__(self) -> None:
        self._configs: dict[str, Config] = {}

    def get(self, name: str) -> Config | None:
        return self._configs.get(name)

    def __iter__(self) -> Iterator[Config]:
        return iter(tuple(self._configs.values()))

    def put(self, raw: Object) -> bool:
        """True when it is new, its generation moved or its deletion began: what a pass must look at."""
        meta = raw["metadata"]
        before = self._configs.get(meta["name"])
        if before is None or before.identity.uid != meta["uid"]:
            self._configs[meta["name"]] = _parsed(raw)
            return True
        if int(meta["resourceVersion"]) < int(before.raw["metadata"]["resourceVersion"]):
            return False
        if before.generation == meta["generation"]:
            self._configs[meta["name"]] = Config(raw, before.spec, before.problem)
            return before.deleting != ("deletionTimestamp" in meta)
        self._configs[meta["name"]] = _parsed(raw)
        return True

    def drop(self, name: str, *, uid: str) -> bool:
        """True when exactly this object was known."""
        known = self._configs.get(name)
        if known is None or known.identity.uid != uid:
            return False
        del self._configs[name]
        return True

    def replace(self, found: Iterable[Object]) -> set[str]:
        """A complete list: the names that appeared, moved or vanished."""
        changed, listed = set(), set()
        for raw in found:
            name = raw["metadata"]["name"]
            listed.add(name)
            if self.put(raw):
                changed.add(name)
        vanished = set(self._configs) - listed
        for name in vanished:
            del self._configs[name]
        return changed | vanished

    def others(self, name: str) -> tuple[OtherConfig, ...]:
        """All but `name`; one that is being deleted still holds its nodes."""
        return tuple(
            OtherConfig(
                name=other.identity.name,
                uid=other.identity.uid,
                created=other.created,
                spec=other.spec,
                accepted=accepted_of(other),
            )
            for other in sorted(self._configs.values(), key=lambda c: c.identity.name)
            if other.identity.name != name
        )

    def concerned(self, old: NodeView | None, new: NodeView | None) -> set[str]:
        """The objects of which a pool matches the node, before or after its change."""
        return {
            config.identity.name
            for config in self._configs.values()
            if config.spec is not None
            and any(matches(pool, node) for pool in config.spec.pools for node in (old, new) if node is not None)
        }


def accepted_of(config: Config) -> bool | None:
    """How the object counts for others, by its own status; None: not judged yet.

    One that was accepted before an edit keeps its place until the edit is judged: what was accepted earlier wins.
    """
    for condition in config.status.get("conditions", ()):
        if condition.get("type") == "Accepted":
            if condition.get("status") == "True":
                return True
            return False if condition.get("observedGeneration") == config.generation else None
    return None


def _parsed(raw: Object) -> Config:
    try:
        return Config(raw, parse_spec(raw), None)
    except InvalidSpecError as problem:
        return Config(raw, None, problem)
