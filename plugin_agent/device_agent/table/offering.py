"""Which devices are offered, and why the others are not. Pure.

Health and offer are two things: a device that is withheld by plan keeps its health (`device.Standing`).

Two rules stand above health. An id is in one list only (`lists.share_out`). Hardware that is in use under one name or
id is offered under no other, and not more often than it has replicas. So nothing is held twice, however the
configuration was edited.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from device_agent.contract.reasons import DeviceReason, Withheld
from device_agent.contract.values import dataclass
from device_agent.health.assessment import Assessment
from device_agent.health.conditions import Conditions
from device_agent.table.contention import Contention
from device_agent.table.cordons import CordonIndex
from device_agent.table.device import Device, Key, Standing
from device_agent.table.gone import Cause
from device_agent.table.hardware import HardwareIndex
from device_agent.table.holdings import Holding, Holdings, may_be_used
from device_agent.table.lists import Ids
from device_agent.table.snapshot import Health, Hold
from device_agent.table.usage import Usage


@dataclass(frozen=True, slots=True)
class Judgement:
    """The input.

    `blocking`: what is in use under another name or id, by its hardware. `gone`: why a device is no longer offered.
    `contention`: what other live agents serve.

    `missing`: since when no scan finds it. `leaving`: ids on their way out -> the name they are listed under.
    `cordons`: what admins withhold.
    `wall`: now, UTC.
    """

    usage: Usage
    blocking: HardwareIndex[Holding]
    elsewhere: Holdings
    gone: Mapping[Key, Cause]
    missing: Mapping[Key, datetime]
    leaving: Mapping[str, str]
    cordons: CordonIndex
    conditions: Conditions
    wall: datetime
    contention: Contention = Contention()

    def standing(self, key: Key, device: Device, ids: Ids, before: Standing | None) -> Standing:
        """The device's standing. `before` itself is returned if nothing is new."""
        if device.present:
            return self._present(key, device, ids, before)
        cause = self.gone[key]
        if cause.reason is not Withheld.DRAINING:
            return self._next(before, Health.UNHEALTHY, cause.reason, cause.message, since=self.missing.get(key))
        assessed = self.conditions.assess(device.unit, found=False)
        hold = Hold(cause.reason, cause.message)
        health = Health.HEALTHY if assessed.offered else Health.UNHEALTHY
        return self._assessed(before, health, assessed, hold=hold)

    def _present(self, key: Key, device: Device, ids: Ids, before: Standing | None) -> Standing:
        assessed = self.conditions.assess(device.unit)
        kept_back, why = self._kept_back(key, ids)
        hold = self._hold(key, device, ids, none_left=why)
        if not assessed.offered:
            return self._assessed(before, Health.UNHEALTHY, assessed, hold=hold)
        lost = frozenset(i for i in ids.current if (key[0], i) in self.usage.lost.by_key)
        broken = self._of_ids(key, ids, lost)
        if broken is not None:
            unanswered = assessed.unanswered
            return self._next(before, Health.UNHEALTHY, *broken, since=None, unanswered=unanswered, hold=hold)
        return self._assessed(before, Health.HEALTHY, assessed, hold=hold, kept_back=kept_back | lost)

    def _hold(self, key: Key, device: Device, ids: Ids, *, none_left: str) -> Hold | None:
        """Why a device that is present is withheld. Use elsewhere comes before a cordon: `granting` refuses only that.

        `none_left`: why all of its ids are kept back, or ''.
        """
        unit = device.unit
        cordon = self.cordons.of(unit) if self.cordons else ""
        if held := self._held_as(key, device, ids) or none_left:
            return Hold(Withheld.HELD_AS, f"{held}; {cordon}" if cordon else held)
        return Hold(Withheld.CORDONED, cordon) if cordon else None

    def _held_as(self, key: Key, device: Device, ids: Ids) -> str:
        """Where else the hardware, its node or its id is in use, for an admin; '' if nowhere."""
        unit = device.unit
        holding = self.blocking.sharing(unit) if self.blocking and device.exclusive else None
        if holding is not None:
            return f"{holding.text}; offered again when that is free"
        if device.exclusive and (text := self.elsewhere.of_node(unit, self.usage)):
            return f"{text}; offered again when that is free"
        if text := self.contention.of_device(key):
            return text
        if ids.unlisted.issuperset(ids.current) and (name := self.leaving.get(unit.id)):
            return f"still listed as {unit.id} of {name}; offered when the kubelet has removed that id"
        return ""

    def _of_ids(self, key: Key, ids: Ids, lost: frozenset[str]) -> tuple[str, str] | None:
        """(reason, message) if none of its ids can be offered, and that is not by plan.

        `lost`: ids that the kubelet has forgotten.
        """
        name, device_id = key
        unlisted = ids.unlisted.issuperset(ids.current)
        if unlisted and device_id not in self.leaving and not self.contention.of_device(key):
            text = f"another device has the same id {device_id}; choose a unit that tells them apart"
            return DeviceReason.DUPLICATE_IDENTITY, text
        if lost and len(lost) == len(ids.current):
            return DeviceReason.KUBELET_FORGOT, f"the kubelet has forgotten that {self._having(name, lost)}"
        return None

    def _having(self, name: str, ids: Iterable[str]) -> str:
        """For an admin: who has ids that the kubelet takes for free, and what to do."""
        who = ", ".join(sorted({who for i in ids for who in self.usage.forgotten_holders(name, i)}))
        return f"{who} has it; delete the pod; the kubelet will know the new one"

    def _kept_back(self, key: Key, ids: Ids) -> tuple[frozenset[str], str]:
        """(free ids that are not offered, why the device has nothing left to offer or '').

        For each id on its way out that may be in use, one free id is kept back. So the device is not used more often
        than it has replicas. Ids in use stay Healthy; otherwise their pods would be reported unhealthy.
        """
        surplus = len(may_be_used(key, ids, self.usage)) if ids.leaving else 0
        if not surplus:
            return frozenset(), ""
        used = {i for i in ids.current if self.usage.in_use(key[0], i)}
        free = [i for i in ids.current if i not in used]
        kept_back = frozenset(free[max(0, len(ids.current) - surplus - len(used)) :])
        if len(kept_back) < len(ids.current):
            return kept_back, ""
        return kept_back, f"{surplus} of its former replicas are in use; offered again when they are free"

    def _assessed(
        self,
        before: Standing | None,
        health: Health,
        assessed: Assessment,
        *,
        hold: Hold | None,
        kept_back: frozenset[str] = frozenset(),
    ) -> Standing:
        return self._next(
            before,
            health,
            assessed.reason,
            assessed.message,
            since=assessed.since,
            unanswered=assessed.unanswered,
            hold=hold,
            kept_back=kept_back,
        )

    def _next(
        self,
        before: Standing | None,
        health: Health,
        reason: str,
        message: str,
        *,
        since: datetime | None,
        unanswered: str = "",
        hold: Hold | None = None,
        kept_back: frozenset[str] = frozenset(),
    ) -> Standing:
        """The standing with its time. `since`: when the cause of being unhealthy began. An admin acknowledges this
        time.

        If the cause has no known time, or the device is healthy, the time changes only with health, reason or hold.
        """
        moment = since or self.wall
        if before is not None and (before.health, before.reason, _word(before.hold)) == (health, reason, _word(hold)):
            moment = since if since is not None and health is Health.UNHEALTHY else before.since
        elif health is Health.HEALTHY and (hold or (before and before.hold)):
            moment = self.wall
        after = Standing(health, moment, reason, message, unanswered, hold, kept_back)
        return before if before is not None and before == after else after


def _word(hold: Hold | None) -> Withheld | None:
    return hold.word if hold is not None else None
