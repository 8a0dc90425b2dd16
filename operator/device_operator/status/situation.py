"""What the conditions of a DevicePluginConfig and its one word are made from: values, and parts of messages. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from device_agent.contract.node_reasons import NodeState
from device_agent.contract.reasons import DeviceHealth
from device_agent.contract.status import ConfigCondition, ConfigStatus, FleetDevice

from device_operator.spec.acceptance import AcceptedState, Rejected
from device_operator.spec.model import Spec
from device_operator.spec.placement import Overlap
from device_operator.spec.wording import name_nodes, name_some
from device_operator.status.nodes import NOT_MADE, NodeReport
from device_operator.status.observed import ApplyProblem
from device_operator.status.rollout import Rollout

MAX_GROUPS: Final = 5
"""Causes that a message describes in full; it counts the others."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem. `reason`: a word of `ConditionReason`, or a node's. `text`: what, where, and
    what to do.
    """

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class BrokenDevices:
    """Devices of one health. `cut`: the number of further devices, for which the inventories had no room."""

    listed: tuple[FleetDevice, ...] = ()
    cut: int = 0

    @property
    def number(self) -> int:
        return len(self.listed) + self.cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the conditions depend on.

    `broken`: the devices that are not Healthy, by health. `devices`: number of known devices. `previous`: the present
    conditions, by type. `applied`: the DaemonSets match the spec in force. `rollout`: which pools wait for it. `gaps`:
    entries without devices, pools without nodes, and nodes that left while pods hold devices.
    """

    standing: AcceptedState
    reports: Sequence[NodeReport]
    overlaps: Sequence[Overlap]
    problems: Sequence[ApplyProblem]
    broken: Mapping[DeviceHealth, BrokenDevices]
    devices: int
    previous: Mapping[str, ConfigCondition]
    complete: bool
    applied: bool
    rollout: Rollout | None = None
    gaps: Sequence[Fault] = ()

    @property
    def basis(self) -> list[NodeReport]:
        """The nodes that count: the settled ones, or the young ones where no node is settled."""
        return [r for r in self.reports if r.settled] or [r for r in self.reports if r.young]

    @property
    def rejected(self) -> Rejected | None:
        return self.standing.rejected

    @property
    def spec(self) -> Spec | None:
        """The spec in force."""
        return self.standing.in_force.spec if self.standing.in_force else None


@dataclass(frozen=True, slots=True)
class Computed:
    """The status, and what is wrong: for alerts, which must be silent while waiting may be enough.

    `faults`: the reason of each fault. `failing`: the nodes with a fault of their own.
    """

    status: ConfigStatus
    faults: tuple[str, ...]
    failing: tuple[NodeReport, ...]


def on_its_way(report: NodeReport) -> bool:
    """Whether waiting may be enough. A pod that cannot be created is a fault, on a young node too."""
    return report.grace or (report.young and report.state is NodeState.PENDING and report.reason not in NOT_MADE)


def causes(reports: Iterable[NodeReport]) -> list[Fault]:
    """A fault for each reason, the most frequent first: its nodes, and the message of one of them."""
    groups: defaultdict[str, list[NodeReport]] = defaultdict(list)
    for report in reports:
        groups[report.reason].append(report)
    order = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    told = [
        Fault(reason, f"{found[0].state} {reason} on {name_nodes(r.name for r in found)}: {found[0].message}")
        for reason, found in order[:MAX_GROUPS]
    ]
    if len(order) > MAX_GROUPS:
        told.append(Fault(order[MAX_GROUPS][0], f"{len(order) - MAX_GROUPS} more causes"))
    return told


def pools(names: Sequence[str]) -> str:
    return f"pool{'s' * (len(names) > 1)} {name_some(names)}"
