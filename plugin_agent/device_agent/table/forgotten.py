"""What running pods have, and the kubelet has forgotten. Pure.

A kubelet that starts with a torn record, or with none, begins with nothing: List and its new record no longer have
what pods have, and it hands that out again (pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint). The agent still
knows the grants from before the restart. A grant is forgotten if its pod still runs, and neither List nor the new
record has it.

List names pods without their uid. If a pod is created again under the same name without the resource, it looks like a
pod that the kubelet forgot. The device stays withheld until that pod ends; nothing is held twice.
"""

from collections.abc import Callable, Iterable
from typing import Final

from device_agent.table.grants import Grant, Grants, SeenGrant
from device_agent.table.holders import Listing

STARTING_SECONDS: Final = 10.0
"""A List that is asked for earlier than this after the kubelet's start may lack running pods: the kubelet adds its pods
one after the other (pkg/kubelet/kubelet.go, HandlePodAdditions).
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
    """Whether the record has one of these. Then it has not been lost: a kubelet forgets all or nothing."""
    there = {grant.where for grant in grants.all}
    return any(one.grant.where in there for one in seen)


def lost(before: Iterable[SeenGrant], grants: Grants) -> tuple[SeenGrant, ...]:
    """Those that the record does not have, each once, if the name of their pod is known. The next List decides."""
    there = {grant.where for grant in grants.all}
    return tuple({one.grant.where: one for one in before if one.name and one.grant.where not in there}.values())


def still_lost(
    candidates: Iterable[SeenGrant], listing: Listing, seen: Iterable[SeenGrant], *, complete: bool
) -> tuple[SeenGrant, ...]:
    """Those whose pod runs, and has nothing of the resource in that container.

    `seen`: what the record has. A pod of the same name with another uid there is another pod. `complete`: the kubelet
    has had the time to hear of all its pods; before, a pod that is not listed may run.
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
