"""What the operator knows of the cluster during one pass: frozen values, reduced to what is used. Pure.

The cache makes them. Times are aware datetimes in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from device_agent.contract.inventory import InventoryStatus
from device_agent.contract.node_reasons import NodeReason

from device_operator.spec.model import Pool
from device_operator.spec.placement import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSetView:
    """A DaemonSet of an object. `pool`: from its label. The counts are those of its status.

    `runs`: the nodes that it selects and the entries that its agents serve.
    """

    name: str
    uid: str
    pool: str
    generation: int
    observed_generation: int = 0
    desired: int = 0
    updated: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)
    runs: Pool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """An agent's pod. `namespace`: for messages.

    `node`: where it runs, or for a pending pod the node that its affinity (matchFields metadata.name) names.
    `template_hash`: annotation `render.ANNOTATION_TEMPLATE`. `ready_changed_at`: last transition of Ready, either way.
    `waiting_*`, `terminated_*`: of the agent's container. While it is not terminated, `terminated_*` come from its
    lastState, which may be old: see `terminated_at`.
    `unscheduled`: message of PodScheduled=False.
    """

    name: str
    node: str | None
    config: str
    pool: str
    created: datetime
    phase: str = "Pending"
    ready: bool = False
    ready_changed_at: datetime | None = None
    deleting: bool = False
    template_hash: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    terminated_reason: str = ""
    terminated_message: str = ""
    terminated_at: datetime | None = None
    exit_code: int | None = None
    restarts: int = 0
    unscheduled: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class PodWarning:
    """The newest Event of type Warning about a pod. `reason`: the kubelet's word, such as FailedCreatePodSandBox."""

    pod: str
    reason: str
    message: str
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class FailedCreate:
    """Event of a DaemonSet that could not make a pod. `daemonset`: its name. `namespace`: the DaemonSet's."""

    daemonset: str
    message: str
    last_seen: datetime
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryView:
    """A NodeDeviceInventory. `status`: written by an agent; None if no agent wrote it yet, or it cannot be read.

    Pruned: devices have no attributes and no device nodes, and `excluded` keeps what says why an
    entry has none.
    `unreadable`: why it cannot be read, or ''.
    `heartbeat`: lastHeartbeatTime as written; `heartbeat_seen`: when it last changed, on the operator's clock.
    """

    name: str
    uid: str
    node: str
    config: str
    owner_uid: str
    status: InventoryStatus | None
    heartbeat_seen: datetime
    heartbeat: str = ""
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class ApplyProblem:
    """Why an object of a pool was not written. `reason`: NotOwned (left alone) or ApplyFailed (tried again)."""

    pool: str
    reason: NodeReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """`nodes`: all of the cluster; the rest belongs to the object. `complete`: each list was read in full once."""

    now: datetime
    nodes: tuple[NodeView, ...] = ()
    daemonsets: tuple[DaemonSetView, ...] = ()
    pods: tuple[PodView, ...] = ()
    inventories: tuple[InventoryView, ...] = ()
    failed_creates: tuple[FailedCreate, ...] = ()
    pod_warnings: tuple[PodWarning, ...] = ()
    complete: bool = True
    problems: tuple[ApplyProblem, ...] = ()
