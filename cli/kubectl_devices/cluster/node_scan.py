"""Scans a node by a pod of the agent's image. The pod and its ConfigMap are deleted in any case."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, Final

from kubectl_devices import errors
from kubectl_devices.cluster.api import Api, Object
from kubectl_devices.cluster.kinds import CONFIGMAPS, PODS

_POLL_SECONDS: Final = 0.5
_HOPELESS: Final = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerError"}


def scan(
    api: Api, pod: Object, config_map: Callable[[Object], Object], *, timeout: float, sleep: Callable[[float], None]
) -> dict[str, Any]:
    """What `device-agent scan` prints on the node.

    Raises:
        errors.CliError: the pod cannot be created, does not start, or fails; the message has the cause.
    """
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    created = api.create(PODS, pod, namespace=namespace)
    try:
        api.create(CONFIGMAPS, config_map(created), namespace=namespace)
        phase = _wait(api, name, namespace, deadline=time.monotonic() + timeout, sleep=sleep)
        log = api.text(PODS, name, namespace=namespace, sub="log")
    finally:
        for kind in (CONFIGMAPS, PODS):
            _delete(api, kind, name, namespace)
    if phase != "Succeeded":
        raise errors.CliError(f"the scan failed: {' '.join(log.split()) or 'it printed nothing'}")
    try:
        found = json.loads(log)
    except ValueError as error:
        raise errors.CliError(f"the scan printed no JSON, but: {log[:200]!r}") from error
    return dict(found)


def _wait(api: Api, name: str, namespace: str, *, deadline: float, sleep: Callable[[float], None]) -> str:
    """The phase in which it ended."""
    while True:
        status = api.get(PODS, name, namespace=namespace).get("status", {})
        phase = str(status.get("phase", ""))
        if phase == "Failed" and status.get("reason"):  # refused by the kubelet, or beyond its deadline
            raise errors.CliError(f"the scan's pod failed: {status['reason']}: {status.get('message', '')}")
        if phase in ("Succeeded", "Failed"):
            return phase
        waiting = _waiting(status)
        if waiting.get("reason") in _HOPELESS or time.monotonic() >= deadline:
            what = f"{waiting.get('reason', phase or 'no kubelet has taken it')}: {waiting.get('message', '')}"
            raise errors.CliError(f"the scan's pod does not start: {what.rstrip(': ')}")
        sleep(_POLL_SECONDS)


def _waiting(status: Object) -> Object:
    states = (c.get("state", {}).get("waiting") or {} for c in status.get("containerStatuses") or ())
    return next((state for state in states if state), {})


def _delete(api: Api, kind: Any, name: str, namespace: str) -> None:
    with contextlib.suppress(errors.NotFoundError):
        api.delete(kind, name, namespace=namespace)
