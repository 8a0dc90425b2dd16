"""A plain client for the tests: not the operator's own, so that both cannot share a mistake."""

import base64
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Object = dict[str, Any]
Owned = Callable[..., dict[str, Object]]
"""Objects with the label of a config, by pool: owned("lab"), owned("lab", "configmaps")."""

NAMESPACE = "device-operator"
GROUP = "device-operator.io"
V1 = f"/apis/{GROUP}/v1alpha1"
CONFIGS = f"{V1}/devicepluginconfigs"
INVENTORIES = f"{V1}/nodedeviceinventories"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CONTENT = {"PATCH": "application/merge-patch+json"}
_TRIES = 25


class RefusedError(Exception):
    def __init__(self, code: int, body: Object) -> None:
        super().__init__(f"{code}: {body.get('message')}")
        self.code = code
        self.body = body


class Kube:
    """The cluster's admin. Paths are the API's, bodies JSON; a refusal raises RefusedError."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=ca)
        with tempfile.NamedTemporaryFile("wb") as pem:
            pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
            pem.write(base64.b64decode(user["client-key-data"]))
            pem.flush()
            self.context.load_cert_chain(pem.name)
        self._connection: http.client.HTTPSConnection | None = None

    def __call__(self, method: str, path: str, body: object = None) -> Object:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": _CONTENT.get(method, "application/json")}
        for attempt in range(_TRIES):
            if self._connection is None:
                address = urlsplit(self.server)
                self._connection = http.client.HTTPSConnection(
                    address.hostname or "", address.port, context=self.context, timeout=30
                )
            try:
                self._connection.request(method, path, body=data, headers=headers)
                response = self._connection.getresponse()
                answer: Object = json.loads(response.read())
            except (http.client.HTTPException, OSError):
                self.close()  # the server has closed a connection that was idle, or was started again
                if attempt == _TRIES - 1:
                    raise
                continue
            if response.status == 429 and attempt < _TRIES - 1:
                time.sleep(0.2)  # "storage is (re)initializing": a CRD that is seconds old
                continue
            if response.status >= 400:
                raise RefusedError(response.status, answer)
            return answer
        raise AssertionError

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str) -> Object:
        return self("GET", path)

    def find(self, path: str) -> Object | None:
        """The object; None if it does not exist."""
        try:
            return self("GET", path)
        except RefusedError as refused:
            if refused.code == 404:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        return list(self("GET", path)["items"])

    def create(self, path: str, body: Object) -> Object:
        return self("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        return self("PATCH", path, body)

    def delete(self, path: str, **options: Any) -> None:
        try:
            self("DELETE", path, options or None)
        except RefusedError as refused:
            if refused.code != 404:
                raise


def eventually(what: str, condition: Callable[[], Any], *, seconds: float = 20.0) -> Any:
    """Returns the first true answer of `condition`. If none comes in time, it fails with the last answer or error."""
    deadline = time.monotonic() + seconds
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = condition()
        except AssertionError as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what}; last: {last!r}")


def node(name: str, **labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, **labels}},
    }


def config(name: str, *, resource: str = "", **spec: Any) -> Object:
    entry = {"name": resource or f"example.com/{name}", "devices": [{"simulated": {"count": 2}}]}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name},
        "spec": {"resources": [entry], **spec},
    }


def pool(name: str, **selector: str) -> Object:
    return {"name": name, "nodeSelector": selector}


def condition(obj: Object, kind: str) -> Object:
    """The object's condition; {} before its first pass."""
    conditions = obj.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def accepted(kube: Kube, name: str) -> Object:
    """The verdict on the object's present generation."""

    def judged() -> Object | None:
        obj = kube.get(f"{CONFIGS}/{name}")
        found = condition(obj, "Accepted")
        return found if found.get("observedGeneration") == obj["metadata"]["generation"] else None

    return eventually(f"a verdict on {name}", judged)


def both(owned: Owned, name: str) -> tuple[Object, Object]:
    """ConfigMap and DaemonSet of a config's only pool, once they are there."""

    def found() -> tuple[Object, Object] | None:
        configmaps, daemonsets = owned(name, "configmaps"), owned(name)
        if not configmaps or not daemonsets:
            return None
        return next(iter(configmaps.values())), next(iter(daemonsets.values()))

    return eventually(f"the objects of {name}", found)
