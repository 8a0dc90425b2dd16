"""Which devices are offered, and why the others are not. Pure.

Two rules stand above health. An id is in one list only (`lists.share_out`). Hardware that is in use under one name or
id is offered under no other, and not more often than it has replicas. So nothing is held twice, however the
configuration was edited.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from device_agent.contract.reasons import DeviceReason
from device_agent.contract.values import dataclass
from device_agent.health.conditions import Conditions
from device_agent.table.contention import Contention
from device_agent.table.device import Device, Key, Standing
from device_agent.table.gone import Cause
from device_agent.table.hardware import HardwareIndex
from device_agent.table.holdings import Holding, Holdings, may_be_used
from device_agent.table.lists import Ids
from device_agent.table.snapshot import Health
from device_agent.table.usage import Usage


@dataclass(frozen=True, slots=True)
class Judgement:
    """The input.

    `blocking`: what is in use under another name or id, by its hardware. `gone`: why a device is no longer offered.
    `contention`: what other live agents serve.

    `missing`: since when no scan finds it. `leaving`: ids on their way out -> the name they are listed under.
    `wall`: now, UTC.
    """

    usage: Usage
    blocking: HardwareIndex[Holding]
    elsewhere: Holdings
    gone: Mapping[Key, Cause]
    missing: Mapping[Key, datetime]
    leaving: Mapping[str, str]
    conditions: Conditions
    wall: datetime
    contention: Contention = Contention()

    def standing(self, key: Key, device: Device, ids: Ids, before: Standing | None) -> Standing:
        """The device's standing. `before` itself is returned if nothing is new."""
        if device.present:
            return self._present(key, device, ids, before)
        cause = self.gone[key]
        return self._next(before, Health.UNHEALTHY, cause.reason, cause.message, since=self.missing.get(key))

    def _present(self, key: Key, device: Device, ids: Ids, before: Standing | None) -> Standing:
        unit, assessed = device.unit, self.conditions.assess(device.unit)
        unanswered = assessed.unanswered

        def refused(reason: str, message: str, since: datetime | None = None) -> Standing:
            return self._next(before, Health.UNHEALTHY, reason, message, since=since, unanswered=unanswered)

        holding = self.blocking.sharing(unit) if self.blocking and device.exclusive else None
        if holding is not None:
            return refused(DeviceReason.HELD_AS, f"{holding.text}; offered again when that is free")
        if device.exclusive and (text := self.elsewhere.of_node(unit, self.usage)):
            return refused(DeviceReason.HELD_AS, f"{text}; offered again when that is free")
        if text := self.contention.of_device(key):
            return refused(DeviceReason.HELD_AS, text)
        if ids.unlisted.issuperset(ids.current):
            return refused(*self._why_unlisted(unit.id))
        if not assessed.offered:
            return refused(assessed.reason, assessed.message, assessed.since)
        lost = frozenset(i for i in ids.current if (key[0], i) in self.usage.lost.by_key)
        if lost and len(lost) == len(ids.current):
            return refused(DeviceReason.KUBELET_FORGOT, f"the kubelet has forgotten that {self._having(key[0], lost)}")
        surplus = len(may_be_used(key, ids, self.usage)) if ids.leaving else 0
        withheld = self._withheld(key, ids, keep=len(ids.current) - surplus) if surplus else frozenset()
        if surplus and len(withheld) == len(ids.current):
            text = f"{surplus} of its former replicas are in use; offered again when they are free"
            return refused(DeviceReason.HELD_AS, text)
        return self._next(
            before,
            Health.HEALTHY,
            assessed.reason,
            assessed.message,
            since=assessed.since,
            unanswered=unanswered,
            withheld=withheld | lost,
        )

    def _having(self, name: str, ids: Iterable[str]) -> str:
        """For an admin: who has ids that the kubelet takes for free, and what to do."""
        who = ", ".join(sorted({who for i in ids for who in self.usage.forgotten_holders(name, i)}))
        return f"{who} has it; delete the pod, its successor is known to the kubelet"

    def _withheld(self, key: Key, ids: Ids, *, keep: int) -> frozenset[str]:
        """Free ids beyond the first `keep` ids. Ids in use stay Healthy; otherwise their pods would be reported
        unhealthy.
        """
        used = {i for i in ids.current if self.usage.in_use(key[0], i)}
        free = [i for i in ids.current if i not in used]
        return frozenset(free[max(0, keep - len(used)) :])

    def _why_unlisted(self, device_id: str) -> tuple[str, str]:
        if name := self.leaving.get(device_id):
            text = f"still listed as {device_id} of {name}; offered when the kubelet has removed that id"
            return DeviceReason.HELD_AS, text
        text = f"another device has the same id {device_id}; choose a unit that tells them apart"
        return DeviceReason.DUPLICATE_IDENTITY, text

    def _next(
        self,
        before: Standing | None,
        health: Health,
        reason: str,
        message: str,
        *,
        since: datetime | None,
        unanswered: str = "",
        withheld: frozenset[str] = frozenset(),
    ) -> Standing:
        """The standing with its time. `since`: when the cause of being unhealthy began. An admin acknowledges this
        time.

        If that is unknown, or the device is healthy, the time changes only with health or reason.
        """
        moment = since or self.wall
        if before is not None and (before.health, before.reason) == (health, reason):
            moment = since if since is not None and health is Health.UNHEALTHY else before.since
        after = Standing(health, moment, reason, message, unanswered, withheld)
        return before if before is not None and before == after else after
