"""What running pods have, and the kubelet has forgotten. Pure.

A kubelet that starts with a torn record, or with none, begins with nothing: List and its new record no longer have
what pods have, and it hands that out again (pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint). The agent
remembers the grants of the life before. The kubelet has forgotten those that are in neither while their pod runs on.

List names pods without their uid. A pod that was made anew under the same name and does not ask for the resource any
more looks the same. Its device stays withheld until it ends; nothing is held twice.
"""

from collections.abc import Iterable
from typing import Final

from device_agent.table.grants import Grant, Grants, SeenGrant
from device_agent.table.holders import Listing

_NOBODY: Final = ("", "")


def with_names(grants: Grants, listing: Listing, before: Iterable[SeenGrant]) -> tuple[SeenGrant, ...]:
    """The grants with the names of their pods. A name that was known before stays: the uid is the pod's."""
    names = {seen.grant.pod: (seen.namespace, seen.name) for seen in before if seen.name}
    for grant in grants.all:
        if grant.pod not in names and (name := _name(grant, listing)) != _NOBODY:
            names[grant.pod] = name
    return tuple(SeenGrant(grant, *names.get(grant.pod, _NOBODY)) for grant in grants.all)


def lost(before: Iterable[SeenGrant], grants: Grants) -> tuple[SeenGrant, ...]:
    """What was there in the kubelet's life before, and is not in its record now. The next List decides."""
    there = {_container(grant) for grant in grants.all}
    return tuple(seen for seen in before if seen.name and _container(seen.grant) not in there)


def still_lost(candidates: Iterable[SeenGrant], listing: Listing) -> tuple[SeenGrant, ...]:
    """Those whose pod is listed, and has nothing of the resource in that container."""
    having = {
        (holder.namespace, holder.pod, holder.container, resource)
        for resource, held in listing.holders.items()
        for holders in held.values()
        for holder in holders
    }
    return tuple(
        seen
        for seen in candidates
        if (seen.namespace, seen.name) in listing.pods
        and (seen.namespace, seen.name, seen.grant.container, seen.grant.resource) not in having
    )


def _name(grant: Grant, listing: Listing) -> tuple[str, str]:
    """The one pod that List shows with all the ids in a container of that name."""
    held = listing.holders.get(grant.resource, {})
    pods: set[tuple[str, str]] | None = None
    for i in grant.ids:
        of_id = {(holder.namespace, holder.pod) for holder in held.get(i, ()) if holder.container == grant.container}
        pods = of_id if pods is None else pods & of_id
    return next(iter(pods)) if pods and len(pods) == 1 else _NOBODY


def _container(grant: Grant) -> tuple[str, str, str]:
    return grant.pod, grant.container, grant.resource
