"""What the node store keeps of the device table: health, and claims of hardware. Pure."""

from collections.abc import Callable
from datetime import datetime

from device_agent.contract.document import Document, Ownership
from device_agent.health.memory import lasting
from device_agent.health.watchlist import Record
from device_agent.select.unit import Selection
from device_agent.table.claims import Claim
from device_agent.table.device_table import DeviceTable

Changed = Callable[[frozenset[str]], None]
"""Gets the names whose list changed, as every event of the table gives them."""


class HealthMemory:
    """What the table knows of the devices' health."""

    def __init__(self, table: DeviceTable, *, changed: Changed) -> None:
        self._table = table
        self._changed = changed
        self._learnt: frozenset[Record] = frozenset()

    @property
    def revision(self) -> int:
        """Grows with each change of `items`."""
        return self._table.health_revision

    def items(self) -> tuple[Record, ...]:
        """What to keep, in a fixed order."""
        return lasting(self._table.health_records())

    def restore(self, own: tuple[Record, ...], *, late: bool, now: float, wall: datetime) -> None:
        """Health that an earlier process knew. If it comes late, only failures of parts count; everything else has been
        checked anew.
        """
        if late:
            self._changed(self._table.inherit(own, now=now, wall=wall))
        else:
            self._table.restore_health(own)

    def learn(self, others: tuple[Record, ...], *, now: float, wall: datetime) -> None:
        """Health of physical parts that other objects' agents knew. Some of it may come later."""
        new = tuple(record for record in others if record not in self._learnt)
        self._learnt = frozenset(others)
        self._changed(self._table.inherit(new, now=now, wall=wall))


class ClaimMemory:
    """What this object has offered, and what other objects offer. `ask()`: for new names, asks PodResources soon."""

    def __init__(self, table: DeviceTable, *, changed: Changed, ask: Callable[[], None]) -> None:
        self._table = table
        self._changed = changed
        self._ask = ask
        self._others: tuple[Claim, ...] = ()

    @property
    def revision(self) -> int:
        """Grows with each change of `items`."""
        return self._table.claims_revision

    def items(self) -> tuple[Claim, ...]:
        """What to keep, in a fixed order."""
        return self._table.claim_records()

    def restore(self, own: tuple[Claim, ...], *, late: bool, now: float, wall: datetime) -> None:  # noqa: ARG002
        """What an earlier process of this object kept, or one that runs beside this one."""
        self._apply(own, now=now, wall=wall)

    def learn(self, others: tuple[Claim, ...], *, now: float, wall: datetime) -> None:
        """What other objects' agents keep now."""
        self._others = others
        self._apply((), now=now, wall=wall)

    def claim(self, document: Document, selection: Selection) -> None:
        """The devices of a selection are about to be offered."""
        exclusive = {r.name for r in document.resources if r.ownership is Ownership.EXCLUSIVE}
        self._table.claim(selection.units, exclusive=exclusive)

    def in_use(self) -> Callable[[Claim], bool]:
        """Whether a pod has a device of a claim, by the last answer of PodResources. Without an answer the result is
        always True.
        """
        holders = self._table.holders()
        if holders is None:
            return lambda _claim: True

        def used(claim: Claim) -> bool:
            cut = {i for i, _ in claim.cut_ids()}
            held = (i for i, who in holders.get(claim.resource, {}).items() if who)
            return any(i in cut or claim.replica(i) is not None for i in held)

        return used

    def _apply(self, own: tuple[Claim, ...], *, now: float, wall: datetime) -> None:
        known = self._table.claimed_names
        self._changed(self._table.apply_claims(own, self._others, now=now, wall=wall))
        if not known.issuperset(self._table.claimed_names):
            self._ask()
