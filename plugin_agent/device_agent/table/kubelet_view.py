"""All that the kubelet has told of who has what, and what of it must outlive the process. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from device_agent.contract.values import dataclass
from device_agent.table import forgotten
from device_agent.table.grants import Grant, Grants, SeenGrant
from device_agent.table.holders import Listing
from device_agent.table.usage import Usage


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the kubelet's record, begun at `begun` (monotonic seconds). `problem`: why it tells nothing, or ''.

    `resent`: when one of our lists was last sent. `life`: of the kubelet.
    """

    grants: tuple[Grant, ...] = ()
    begun: float = 0.0
    resent: float | None = None
    life: object = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KubeletView:
    """`usage`: what is or may be in use. `seen`: its grants with the names of their pods, for the node store.

    `life`: of the kubelet at the last look at its record. `missing`: those of `seen` from the life before that its
    record does not have; those whose pod runs on are `usage.lost`. `decided`: when the List that decides must have
    begun, at least.
    """

    usage: Usage = Usage()
    seen: tuple[SeenGrant, ...] = ()
    life: object = None
    missing: tuple[SeenGrant, ...] = ()
    decided: float = 0.0

    def restored(self, seen: Iterable[SeenGrant]) -> "KubeletView":
        """What an earlier process has seen. It counts until the record has been read."""
        if self.usage.looked and not self.usage.problem:
            return self
        seen = tuple(seen)
        named = {one.grant.pod: f"{one.namespace}/{one.name}" for one in seen if one.name}
        usage = replace(self.usage.restored(Grants(tuple(one.grant for one in seen))), names=named)
        return replace(self, usage=usage, seen=seen)

    def listed(self, listing: Listing | None, *, begun: float) -> "KubeletView":
        """One answer of PodResources List, asked for at `begun`."""
        usage = self.usage.listed(listing, begun=begun)
        missing = self.missing
        if missing and usage.known and begun >= self.decided:
            missing = forgotten.still_lost(missing, usage.listing)
        return self._after(usage, missing)

    def read(self, grants: Grants, *, at: float, resent: float | None, life: object) -> "KubeletView":
        """The record as it was at `at`. `resent`: when one of our lists was last sent; `life`: of the kubelet."""
        missing = forgotten.lost(self.missing, grants)
        decided = self.decided
        if life != self.life:
            missing, decided = forgotten.lost(self.seen, grants), at
        usage = self.usage.read(grants, at=at, resent=resent)
        return replace(self._after(usage, missing), life=life, decided=decided)

    def unreadable(self, problem: str) -> "KubeletView":
        """The record is there and tells nothing."""
        usage = self.usage.unreadable(problem)
        return self if usage is self.usage else replace(self, usage=usage)

    def handed_out(self, resource: str, ids: Iterable[str], *, now: float) -> "KubeletView":
        """An Allocate gave out these ids. A pod waits for it."""
        usage = self.usage.handed_out(resource, ids, now=now)
        return KubeletView(usage, self.seen, self.life, self.missing, self.decided)

    def _after(self, usage: Usage, missing: tuple[SeenGrant, ...]) -> "KubeletView":
        before, seen = self.usage, self.seen
        if missing != self.missing:
            usage = replace(usage, lost=Grants(tuple(one.grant for one in missing)))
        told = usage.grants is not before.grants or usage.listing is not before.listing
        if usage.looked and (told or missing != self.missing):
            now = (*forgotten.with_names(usage.grants, usage.listing, seen), *missing)
            if now != seen:
                seen = now
                named = {one.grant.pod: f"{one.namespace}/{one.name}" for one in seen if one.name}
                usage = replace(usage, names=named)
        return replace(self, usage=usage, missing=missing, seen=seen)
