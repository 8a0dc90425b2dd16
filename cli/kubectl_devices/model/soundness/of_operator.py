"""The kinds, and the operator: is it there, does it run, does one of its replicas lead?"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from device_agent.contract import names

from kubectl_devices.model.soundness.finding import CheckReason, Finding, Severity, age
from kubectl_devices.model.soundness.observed import Objects, Observed, condition, moment

KINDS: Final = ("devicepluginconfigs", "nodedeviceinventories")
_SLACK: Final = timedelta(seconds=5)
"""A renewal may be on its way."""


def kinds(seen: Observed) -> Iterator[Finding]:
    install = "install the chart with crds.enabled=true, or apply crds/ of the release"
    missing = set(seen.kinds_missing)
    if seen.crds is not None:
        missing |= set(KINDS) - {str(c["spec"]["names"]["plural"]) for c in seen.crds}
    for plural in sorted(missing):
        where = f"CustomResourceDefinition {plural}.{names.GROUP}"
        yield Finding(
            reason=CheckReason.KIND_MISSING, where=where, what="the API server does not know the kind", todo=install
        )
    for crd in seen.crds or ():
        where = f"CustomResourceDefinition {crd['metadata']['name']}"
        served = [v["name"] for v in crd["spec"]["versions"] if v.get("served")]
        established = condition(crd, "Established")
        if names.VERSION not in served:
            what = f"version {names.VERSION} is not served, only {', '.join(served) or 'none'}"
            yield Finding(reason=CheckReason.VERSION_NOT_SERVED, where=where, what=what, todo=install)
        elif established.get("status") != "True":
            what = f"it is not established: {condition(crd, 'NamesAccepted').get('message') or 'wait a moment'}"
            yield Finding(
                reason=CheckReason.KIND_NOT_ESTABLISHED, where=where, what=what, todo="look for a kind of the same name"
            )


def operator(seen: Observed) -> Iterator[Finding]:
    if seen.deployments is not None and not seen.deployments:
        yield _missing(seen)
        return
    yield from _deployments(seen.deployments or ())
    yield from _lease(seen)


def _missing(seen: Observed) -> Finding:
    """Without a Deployment: is the operator gone, or does it run in another way?"""
    todo = "helm install the chart; if it runs elsewhere, name its namespace with --operator-namespace"
    where = f"namespace {seen.namespace}"
    none = "there is no Deployment with the labels of the chart"
    if seen.lease is not None and not any(_lease(seen)):
        what = f"{none}, but {seen.lease['spec']['holderIdentity']} leads"
        return Finding(
            severity=Severity.WARNING, reason=CheckReason.OPERATOR_MISSING, where=where, what=what, todo=todo
        )
    what = f"{none}, so nothing is reconciled; agents that run go on serving"
    return Finding(reason=CheckReason.OPERATOR_MISSING, where=where, what=what, todo=todo)


def _deployments(deployments: Objects) -> Iterator[Finding]:
    if len(deployments) > 1:
        places = ", ".join(f"{d['metadata']['namespace']}/{d['metadata']['name']}" for d in deployments)
        yield Finding(
            severity=Severity.WARNING,
            reason=CheckReason.TWO_OPERATORS,
            where=f"Deployments {places}",
            what="the operator is installed more than once; DevicePluginConfigs belong to the whole cluster",
            todo="uninstall all but one",
        )
    for deployment in deployments:
        meta, status = deployment["metadata"], deployment.get("status", {})
        where, kubectl = f"Deployment {meta['namespace']}/{meta['name']}", f"kubectl -n {meta['namespace']}"
        if deployment["spec"].get("replicas", 1) == 0:
            what, todo = "it is scaled to 0 replicas", f"{kubectl} scale deploy {meta['name']} --replicas=2"
            yield Finding(reason=CheckReason.OPERATOR_SCALED_DOWN, where=where, what=what, todo=todo)
        elif not status.get("availableReplicas"):
            told = (condition(deployment, kind).get("message") for kind in ("ReplicaFailure", "Available"))
            why = next(filter(None, told), "its pods are not Ready")
            what = f"none of its replicas is available: {why}"
            todo = f"{kubectl} describe pods -l app.kubernetes.io/component=operator"
            yield Finding(reason=CheckReason.OPERATOR_UNAVAILABLE, where=where, what=what, todo=todo)


def _lease(seen: Observed) -> Iterator[Finding]:
    if not seen.lease_read:
        return
    where = f"Lease {seen.namespace}/{seen.lease_name}"
    todo = f"kubectl -n {seen.namespace} logs deploy/device-operator; kubectl -n {seen.namespace} get pods"
    if seen.lease is None:
        what = "no operator has ever led here, so nothing is reconciled"
        yield Finding(reason=CheckReason.OPERATOR_NEVER_LED, where=where, what=what, todo=todo)
        return
    spec = seen.lease.get("spec", {})
    holder, renewed = spec.get("holderIdentity") or "", moment(spec.get("renewTime"))
    since = age(seen.now - renewed) if renewed else "an unknown time"
    if not holder:
        what = f"no operator leads: the last one ended {since} ago, so nothing is reconciled, and the status is old"
        yield Finding(reason=CheckReason.OPERATOR_GONE, where=where, what=what, todo=todo)
    elif renewed is None or seen.now - renewed > timedelta(seconds=spec.get("leaseDurationSeconds", 15)) + _SLACK:
        what = f"{holder} has given no sign of life for {since}: nothing is reconciled, and the status is old"
        yield Finding(reason=CheckReason.OPERATOR_GONE, where=where, what=what, todo=todo)
