"""What running pods have although the kubelet has forgotten it. Pure.

A kubelet that starts with a torn record, or with none, begins with nothing. Neither List nor its new record then shows
what running pods have. It hands that out again (pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint). The agent
still knows the grants from before the restart. A grant is forgotten if its pod still runs, and neither List nor the new
record has it.

List names pods without their uid. So a pod that is created again under the same name without the resource looks like a
pod that the kubelet forgot. The device then stays withheld until that pod ends; nothing is held twice.
"""

from collections.abc import Callable, Iterable
from typing import Final

from device_agent.table.grants import Grant, Grants, SeenGrant
from device_agent.table.holders import Listing

STARTING_SECONDS: Final = 10.0
"""A List that was asked for earlier than this after the kubelet's start may lack running pods: the kubelet adds its
pods one after the other (pkg/kubelet/kubelet.go, HandlePodAdditions).
"""
_NOBODY: Final = ("", "")


def with_names(
    grants: Grants, listing: Listing, before: Iterable[SeenGrant], *, listed: Callable[[Grant], bool]
) -> tuple[SeenGrant, ...]:
    """The grants with what was known of them before, and with the names of their pods.

    A known name is kept, because a uid never changes its pod. `listed`: whether the last List can name this grant's
    pod. It cannot if the ids had another holder then.
    """
    known = {seen.grant.where: seen for seen in before}
    names = {seen.grant.pod: (seen.namespace, seen.name) for seen in known.values() if seen.name}
    for grant in grants.all:
        if grant.pod not in names and listed(grant) and (name := _name(grant, listing)) != _NOBODY:
            names[grant.pod] = name
    seen = (known.get(grant.where, SeenGrant(grant)) for grant in grants.all)
    return tuple(
        SeenGrant(grant, *names.get(grant.pod, _NOBODY), old.devices, old.boot)
        for grant, old in zip(grants.all, seen, strict=True)
    )


def any_there(seen: Iterable[SeenGrant], grants: Grants) -> bool:
    """Whether the record has one of these grants. If so, the record was not lost: a kubelet forgets all or nothing."""
    there = {grant.where for grant in grants.all}
    return any(one.grant.where in there for one in seen)


def lost(before: Iterable[SeenGrant], grants: Grants) -> tuple[SeenGrant, ...]:
    """The grants that the record does not have, each once. The next List decides about them.

    A grant is left out if the name of its pod is not known: List has only names.
    """
    there = {grant.where for grant in grants.all}
    return tuple({one.grant.where: one for one in before if one.name and one.grant.where not in there}.values())


def still_lost(
    candidates: Iterable[SeenGrant], listing: Listing, seen: Iterable[SeenGrant], *, complete: bool
) -> tuple[SeenGrant, ...]:
    """The candidates whose pod still runs, and whose container has nothing of the resource in List.

    `seen`: the grants in the record. If one of them is of a pod with the same name and another uid, the candidate's pod
    was replaced, and nothing is lost. `complete`: the kubelet has had time to learn of all its pods. Before that, a pod
    that is not listed may still run.
    """
    candidates = tuple(candidates)
    lost_pods = {one.grant.pod for one in candidates}
    others = {(one.namespace, one.name) for one in seen if one.grant.pod not in lost_pods}
    having = {
        (holder.namespace, holder.pod, holder.container, resource)
        for resource, held in listing.holders.items()
        for holders in held.values()
        for holder in holders
    }
    return tuple(
        one
        for one in candidates
        if ((one.namespace, one.name) in listing.pods or not complete)
        and (one.namespace, one.name) not in others
        and (one.namespace, one.name, one.grant.container, one.grant.resource) not in having
    )


def _name(grant: Grant, listing: Listing) -> tuple[str, str]:
    """The one pod that List shows with all the ids in a container of that name."""
    held = listing.holders.get(grant.resource, {})
    pods: set[tuple[str, str]] | None = None
    for i in grant.ids:
        of_id = {(holder.namespace, holder.pod) for holder in held.get(i, ()) if holder.container == grant.container}
        pods = of_id if pods is None else pods & of_id
    return next(iter(pods)) if pods and len(pods) == 1 else _NOBODY
