"""`kubectl devices drain`: cordon devices, then end the pods that hold them, as PodDisruptionBudgets allow."""

import argparse
import time
from collections.abc import Callable, Iterable

from kubectl_devices import errors
from kubectl_devices.cluster.kinds import INVENTORIES, PODS
from kubectl_devices.commands import cordon, flags
from kubectl_devices.commands.command import Command
from kubectl_devices.model import cordons, eviction
from kubectl_devices.model.cordons import Target
from kubectl_devices.model.eviction import HolderPod, Verdict
from kubectl_devices.model.fleet import Device, read_inventory
from kubectl_devices.session import Session

_POLL_SECONDS = 1.0


def arguments(parser: argparse.ArgumentParser) -> None:
    cordon.cordon_arguments(parser)
    parser.add_argument("--force", action="store_true", help="also end pods that have no controller")
    parser.add_argument("--grace-period", type=int, default=-1, metavar="SECONDS", help="default: the pod's own")
    parser.add_argument("--timeout", type=flags.seconds, default=300.0, metavar="TIME", help="default: 5m")
    parser.add_argument("--dry-run", action="store_true", help="only say which pods would be ended")


def run(session: Session) -> int:
    options = session.options
    if options.dry_run:
        inventories, targets = cordon.chosen(session)
        held = cordons.targeted(inventories, targets)
        for pod in _pods(session, held):
            session.out.line(
                f"would evict {pod.title}" if pod.verdict is not Verdict.GONE else f"{pod.title} has ended"
            )
        return 0
    deadline = time.monotonic() + options.timeout
    _, targets = cordon.cordon(session)
    # a pod that comes back must not get the device again
    _until(lambda: _offered(session, targets), deadline, "the agent still offers")
    pods = _pods(session, _now(session, targets))
    if why := eviction.objections(pods, force=options.force):
        raise errors.CliError(f"the devices are cordoned, but not drained: {'; '.join(why)}")
    _evict(session, [p for p in pods if p.verdict is not Verdict.GONE], deadline)
    _until(lambda: _holders(session, targets), deadline, "still held by")
    session.out.line(f"{options.node} drained")
    return 0


def _now(session: Session, targets: Iterable[Target]) -> tuple[Device, ...]:
    names = [t.inventory for t in targets]
    return cordons.targeted((read_inventory(session.api.get(INVENTORIES, name)) for name in names), targets)


def _offered(session: Session, targets: Iterable[Target]) -> str:
    """The devices that new pods may still get. An Unhealthy one is offered to nobody."""
    return ", ".join(sorted({d.id for d in _now(session, targets) if d.offer == "Yes"}))


def _holders(session: Session, targets: Iterable[Target]) -> str:
    return ", ".join(sorted({f"{h.namespace}/{h.pod}" for d in _now(session, targets) for h in d.holders}))


def _pods(session: Session, devices: Iterable[Device]) -> tuple[HolderPod, ...]:
    """The pods that hold the devices, each judged.

    Raises:
        errors.ForbiddenError: the user may not get pods.
    """
    found = []
    for namespace, name in sorted({(h.namespace, h.pod) for d in devices for h in d.holders}):
        try:
            pod = session.api.get(PODS, name, namespace=namespace)
        except errors.NotFoundError:
            pod = None
        found.append(eviction.judged(namespace, name, pod))
    return tuple(found)


def _evict(session: Session, pods: list[HolderPod], deadline: float) -> None:
    """Evicts each pod once. A disruption budget may refuse for a while.

    Raises:
        errors.CliError: a budget refused until the end.
    """
    waiting = list(pods)
    told: set[str] = set()
    while waiting:
        refused: list[tuple[HolderPod, str]] = []
        for pod in waiting:
            if why := _evicted(session, pod):
                refused.append((pod, why))
            else:
                session.out.line(f"evicting {pod.title}")
        for pod, why in refused:
            if pod.title not in told:
                session.out.notes([f"{pod.title} waits: {why}"])
                told.add(pod.title)
        if refused and time.monotonic() >= deadline:
            pod, why = refused[0]
            raise errors.CliError(f"{pod.title} was not evicted in time: {why}; raise --timeout or the budget")
        waiting = [pod for pod, _ in refused]
        if waiting:
            time.sleep(_POLL_SECONDS)


def _evicted(session: Session, pod: HolderPod) -> str:
    """Why it was refused for now, or ''."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
    }
    if session.options.grace_period >= 0:
        body["deleteOptions"] = {"gracePeriodSeconds": session.options.grace_period}
    try:
        session.api.create(PODS, body, namespace=pod.namespace, name=pod.name, sub="eviction")
    except errors.NotFoundError:
        return ""
    except errors.TooManyError as error:
        return str(error)
    return ""


def _until(left: Callable[[], str], deadline: float, what: str) -> None:
    """Waits until `left` says nothing.

    Raises:
        errors.CliError: it still says something at the end.
    """
    while text := left():
        if time.monotonic() >= deadline:
            raise errors.CliError(f"not drained in time: {what} {text}; the devices stay cordoned")
        time.sleep(_POLL_SECONDS)


COMMAND = Command(
    name="drain",
    help="cordon devices, then evict the pods that hold them",
    about=(
        "Evicts through the eviction API, so PodDisruptionBudgets are honoured. The devices stay cordoned afterwards. "
        "Needs the rights to get pods and to create pods/eviction."
    ),
    arguments=arguments,
    run=run,
)
