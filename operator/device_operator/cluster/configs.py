"""The DevicePluginConfigs as last seen, each parsed once per generation.

They are few. kopf's events bring changes; a list at the start and at every resync brings what those may have
missed: kopf does not report what vanished while its watch was down.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from device_operator.cluster.client import Object
from device_operator.cluster.views import moment
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.model import ConfigRef, Pool, Spec
from device_operator.spec.parsing import parse_spec
from device_operator.spec.placement import NodeView, OtherConfig, matches
from device_operator.status.conditions import was_accepted
from device_operator.status.observed import DaemonSetView
from device_operator.status.pools import running

Running = Callable[[ConfigRef], Iterable[DaemonSetView]]
"""The DaemonSets of an object, as the cache knows them."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Config:
    """One object: its JSON, and its spec or what is wrong with it."""

    raw: Object
    spec: Spec | None
    problem: InvalidSpecError | None

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
    def status(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.raw.get("status") or {}
        return found


class ConfigStore:
    """By name; a newer resourceVersion replaces an older one, never the other way round.

    Events, lists and answers to our own writes bring objects, and may overtake each other: one that was dropped
    does not come back with the one that is late.
    """

    def __init__(self) -> None:
        self._configs: dict[str, Config] = {}
        self._dropped: set[str] = set()
        self._verdicts: dict[str, tuple[int, bool]] = {}

    def get(self, name: str) -> Config | None:
        return self._configs.get(name)

    def __iter__(self) -> Iterator[Config]:
        return iter(tuple(self._configs.values()))

    def put(self, raw: Object) -> bool:
        """True when it is new, its generation moved or its deletion began: what a pass must look at."""
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
            self._configs[meta["name"]] = Config(raw, before.spec, before.problem)
            return before.deleting != ("deletionTimestamp" in meta)
        self._configs[meta["name"]] = _parsed(raw)
        return True

    def drop(self, name: str, *, uid: str) -> bool:
        """True when exactly this object was known."""
        self._dropped.add(uid)
        known = self._configs.get(name)
        if known is None or known.ref.uid != uid:
            return False
        self._drop(known)
        return True

    def _drop(self, config: Config) -> None:
        self._dropped.add(config.ref.uid)
        self._verdicts.pop(config.ref.uid, None)
        del self._configs[config.ref.name]

    def replace(self, found: Iterable[Object], *, version: int) -> set[str]:
        """A complete list as of resourceVersion `version`: the names that appeared, moved or vanished."""
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
        self._dropped.clear()  # what is still on its way is of now
        return changed | vanished

    def judged(self, config: Config, *, accepted: bool) -> None:
        """The verdict on a generation counts for others from now on, not from when the status has it."""
        self._verdicts[config.ref.uid] = (config.generation, accepted)

    def was_accepted(self, config: Config) -> bool:
        """Whether the present generation has been, which is never taken back."""
        return was_accepted(config.raw) or self._verdicts.get(config.ref.uid) == (config.generation, True)

    def accepted(self, config: Config) -> bool | None:
        """How the object's spec counts for others; None: not judged yet.

        One that was accepted before an edit keeps its place until the edit is judged: what was accepted earlier wins.
        """
        generation, accepted = self._verdicts.get(config.ref.uid, (0, False))
        if generation == config.generation:
            return accepted
        for condition in config.status.get("conditions", ()):
            if condition.get("type") == "Accepted":
                if condition.get("status") == "True":
                    return True
                return False if condition.get("observedGeneration") == config.generation else None
        return None

    def others(self, name: str, *, daemonsets: Running = lambda _: ()) -> tuple[OtherConfig, ...]:
        """All but `name`; one that is being deleted still holds its nodes."""
        return tuple(
            OtherConfig(
                name=other.ref.name,
                uid=other.ref.uid,
                created=other.created,
                spec=other.spec,
                accepted=self.accepted(other),
                running=_pools(running(daemonsets(other.ref))),
            )
            for other in sorted(self._configs.values(), key=lambda c: c.ref.name)
            if other.ref.name != name
        )

    def concerned(self, old: NodeView | None, new: NodeView | None, *, daemonsets: Running = lambda _: ()) -> set[str]:
        """The objects of which a pool matches the node, before or after its change."""
        return {
            config.ref.name
            for config in self._configs.values()
            if any(
                matches(pool, node)
                for pool in self._watched(config, daemonsets)
                for node in (old, new)
                if node is not None
            )
        }

    def _watched(self, config: Config, daemonsets: Running) -> tuple[Pool, ...]:
        if self.accepted(config):
            return _pools(config.spec)
        return (*_pools(config.spec), *_pools(running(daemonsets(config.ref))))


def _pools(spec: Spec | None) -> tuple[Pool, ...]:
    return spec.pools if spec is not None else ()


def _parsed(raw: Object) -> Config:
    try:
        return Config(raw, parse_spec(raw), None)
    except InvalidSpecError as problem:
        return Config(raw, None, problem)
