"""All that the kubelet has said about who has what, and what of it must outlive the process. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from device_agent.allocate.grant import GrantedDevice
from device_agent.contract.values import dataclass
from device_agent.table import forgotten
from device_agent.table.device import Key
from device_agent.table.grants import Grant, Granted, Grants, SeenGrant
from device_agent.table.holders import Listing
from device_agent.table.usage import Usage

Found = Mapping[tuple[str, str, str], tuple[GrantedDevice, ...]]
"""`Grant.where` -> our devices that were found in it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the kubelet's record, begun at `begun` (monotonic seconds).

    `resent`: when one of our lists was last sent. `life`: the run of the kubelet; `started`: when that run began.
    `problem`: why the record cannot be used, or ''.
    """

    grants: tuple[Grant, ...] = ()
    begun: float = 0.0
    resent: float | None = None
    life: object = None
    started: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KubeletView:
    """What is in use, and since when that is known. A life is one run of the kubelet.

    `usage`: what is or may be in use.
    `seen`: the grants in `usage` with the names of their pods, for the node store.
    `life`: the run of the kubelet whose record was read last.
    `suspected`: the run whose record was last looked at. Its record may be one that cannot be used.
    `begun`: when the first look at the record of that run began. If the record could not be used then, the first look
    at a record that can be used counts. A List that was asked for earlier says nothing about `missing`.
    `started`: when the run `suspected` began.
    `missing`: grants of an earlier life that the record does not have. `usage.lost` has those whose pod still runs.
    `heard`: what other objects' agents knew when this agent started.
    `kept`: ids that the kubelet keeps for pods that are gone -> the pod.
    `appeared`: `Grant.where` -> when the record was first read with it.
    """

    usage: Usage = Usage()
    seen: tuple[SeenGrant, ...] = ()
    life: object = None
    suspected: object = None
    missing: tuple[SeenGrant, ...] = ()
    begun: float = 0.0
    started: float = 0.0
    heard: tuple[SeenGrant, ...] = ()
    kept: Mapping[Key, str] = field(default_factory=dict)
    appeared: Mapping[tuple[str, str, str], float] = field(default_factory=dict)

    # Events

    def restored(self, seen: Iterable[SeenGrant]) -> "KubeletView":
        """With the grants that an earlier process has seen. They count until the record has been read."""
        return self if self.life is not None else replace(self, seen=tuple(seen)).until_read()

    def learnt(self, others: Iterable[SeenGrant]) -> "KubeletView":
        """With the grants that other objects' agents have seen."""
        heard = tuple(others)
        if self.life is None:
            return replace(self, heard=heard).until_read()
        more = {one.grant.where: one for one in heard if one.devices}
        seen = tuple(one if one.devices else more.get(one.grant.where, one) for one in self.seen)
        return replace(self, seen=seen, heard=heard)

    def listed(self, listing: Listing | None, *, begun: float) -> "KubeletView":
        """After one answer of PodResources List, asked for at `begun`."""
        usage, missing = self.usage.listed(listing, begun=begun), self.missing
        if missing and usage.known and begun >= self.begun:
            complete = begun >= self.started + forgotten.STARTING_SECONDS
            missing = forgotten.still_lost(missing, usage.listing, self.seen, complete=complete)
        return self.concluded(usage, missing)

    def read(self, reading: Reading) -> "KubeletView":
        """After one look at the record."""
        if reading.problem:
            return self._unreadable(reading)
        grants, missing, begun = Grants(reading.grants), self.missing, self.begun
        if reading.life != self.life:
            missing, begun = (*missing, *self.seen), reading.begun
            if self.life is None:
                whole = forgotten.any_there(self.heard, grants)
                missing = (*missing, *(one for one in self.heard if one.lost or not whole))
        missing = forgotten.lost(missing, grants)
        usage = self.usage.read(grants, at=reading.begun, resent=reading.resent)
        appeared = {grant.where: self.appeared.get(grant.where, reading.begun) for grant in grants.all}
        after = replace(self, appeared=appeared).concluded(usage, missing, read=reading.begun)
        return replace(after, life=reading.life, suspected=reading.life, begun=begun, started=reading.started)

    def handed_out(self, given: Iterable[tuple[Key, Granted]], *, now: float) -> "KubeletView":
        """After an Allocate gave out these ids. A pod waits for this."""
        usage = self.usage.handed_out(given, now=now)
        return KubeletView(
            usage,
            self.seen,
            self.life,
            self.suspected,
            self.missing,
            self.begun,
            self.started,
            self.heard,
            self.kept,
            self.appeared,
        )

    def found(self, devices: Found, *, boot: str) -> "KubeletView":
        """With our devices that were found in grants without a note."""
        if not devices:
            return self
        seen = tuple(
            replace(one, devices=devices[one.grant.where], boot=boot) if one.grant.where in devices else one
            for one in self.seen
        )
        return replace(self, seen=seen)

    def settled(self) -> "KubeletView":
        """After List was asked, one of our lists was sent again, and the record was read, in this order.

        If the record still has ids of ended pods now, the kubelet keeps them for good.
        """
        usage = self.usage
        if not usage.known or usage.problem:
            return self
        gone = {
            one.grant.where: f"{one.namespace}/{one.name}"
            for one in self.seen
            if one.name and (one.namespace, one.name) not in usage.listing.pods
        }
        kept = {
            key: gone[grant.where]
            for key in usage.left_over
            for grant in usage.grants.by_key[key]
            if grant.where in gone
        }
        return self if kept == self.kept else replace(self, kept=kept)

    # What follows

    def until_read(self) -> "KubeletView":
        """Before the first record is read: what any agent saw last counts as in use."""
        seen = {one.grant.where: one for one in (*self.heard, *self.seen)}.values()
        usage = self.usage.restored(Grants(tuple(one.grant for one in seen)))
        return replace(self, usage=replace(usage, names=_names(seen)))

    def _unreadable(self, reading: Reading) -> "KubeletView":
        """The record cannot be used. A kubelet that starts with it may have forgotten everything."""
        usage = self.usage.unreadable(reading.problem)
        if reading.life != self.suspected:
            known = (*self.missing, *self.seen, *(self.heard if self.life is None else ()))
            after = replace(self, suspected=reading.life, begun=reading.begun, started=reading.started)
            return after.concluded(usage, forgotten.lost(known, Grants()))
        return self if usage is self.usage else replace(self, usage=usage)

    def concluded(self, usage: Usage, missing: tuple[SeenGrant, ...], *, read: float | None = None) -> "KubeletView":
        """With this usage. `missing`: grants that the kubelet may have forgotten. `read`: when the record was read."""
        before, seen = self.usage, self.seen
        if missing != self.missing:
            usage = replace(usage, lost=Grants(tuple(one.grant for one in missing)))
        told = usage.grants is not before.grants or usage.past is not before.past or read is not None
        if usage.looked and (told or missing != self.missing):
            used = Grants((*usage.grants.all, *usage.past.all))
            there = forgotten.with_names(
                used, usage.listing, (*self.heard, *seen), listed=lambda grant: self._listed_with(grant, usage, read)
            )
            now = (*there, *(replace(one, lost=True) for one in forgotten.lost(missing, used)))
            if now != seen:
                seen = now
                usage = replace(usage, names=_names(seen))
        kept = {key: pod for key, pod in self.kept.items() if key in usage.grants.by_key} if self.kept else self.kept
        return replace(self, usage=usage, missing=missing, seen=seen, kept=kept)

    def _listed_with(self, grant: Grant, usage: Usage, read: float | None) -> bool:
        """Whether the record had the grant before the last List, and has it still: then List names its pod."""
        appeared, begun = self.appeared.get(grant.where), usage.begun
        return appeared is not None and begun is not None and read is not None and appeared < begun < read


def _names(seen: Iterable[SeenGrant]) -> dict[str, str]:
    return {one.grant.pod: f"{one.namespace}/{one.name}" for one in seen if one.name}
