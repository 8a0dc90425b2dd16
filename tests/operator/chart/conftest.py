"""The chart on a real API server of its own: its policies refuse what other tests of this level want to write.

There are no controllers and no nodes. So pods are objects with a node's name, as the scheduler leaves them. Tests
ask for the pods' tokens, as the kubelet would.
"""

import base64
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from localcluster import Cluster, Profile, places

CHART = places.CHECKOUT / "charts" / "device-operator"
NAMESPACE = "devices"
RELEASE = "do"
OPERATOR = f"{RELEASE}-device-operator"
AGENT = f"{RELEASE}-device-operator-agent"
API_VERSION = "device-operator.io/v1alpha1"
INVENTORIES = f"/apis/{API_VERSION}/nodedeviceinventories"
CONFIGS = f"/apis/{API_VERSION}/devicepluginconfigs"
CONTENT = {"PATCH": "application/merge-patch+json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is the object, or the Status with its message."""

    code: int
    body: Mapping[str, Any]

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


@dataclass(frozen=True, slots=True)
class User:
    """Requests to the API server as one user; without a token as the cluster's admin."""

    server: str
    context: ssl.SSLContext
    token: str = field(default="", repr=False)

    def __call__(self, method: str, path: str, body: object = None) -> Answer:
        headers = {"Content-Type": CONTENT.get(method, "application/json")}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return Answer(answer.status, json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, json.load(error))


class Release:
    """The chart as an admin installs it, and the users that then exist."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.notes = ""
        config = json.loads(cluster.kubeconfig.read_text())
        self._ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        user = config["users"][0]["user"]
        context = ssl.create_default_context(cadata=self._ca)
        files = []
        for name in ("client-certificate-data", "client-key-data"):
            file = folder / name
            file.touch(0o600)
            file.write_bytes(base64.b64decode(user[name]))
            files.append(file)
        context.load_cert_chain(*files)
        self.admin = User(cluster.server, context)

    def helm(self, verb: str, *values: str) -> str:
        settings = [f"--set={value}" for value in values]
        if verb == "upgrade":
            settings.append("--reset-values")  # else an upgrade without values keeps those of the one before
        chart = [] if verb == "uninstall" else [str(CHART)]
        return self.cluster.helm(verb, RELEASE, *chart, "-n", NAMESPACE, *settings)

    def with_token(self, token: str) -> User:
        return User(self.cluster.server, ssl.create_default_context(cadata=self._ca), token)

    def token(self, account: str, *, pod: Mapping[str, Any] | None = None) -> str:
        """A token of a ServiceAccount, bound to `pod` as the kubelet's are, or to nothing."""
        spec: dict[str, Any] = {"audiences": [], "expirationSeconds": 3600}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        answer = self.admin("POST", path, {"spec": spec})
        assert answer.code == 201, answer.message
        return str(answer.body["status"]["token"])

    def pod(self, node: str, *, account: str = AGENT) -> Mapping[str, Any]:
        """A pod as the DaemonSet controller and the scheduler would leave it: on `node`."""
        spec = {"nodeName": node, "serviceAccountName": account, "containers": [{"name": "a", "image": "a"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "agent-"}, "spec": spec}
        answer = self.admin("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        assert answer.code == 201, answer.message
        return answer.body

    def agent_on(self, node: str) -> User:
        return self.with_token(self.token(AGENT, pod=self.pod(node)))

    @staticmethod
    def inventory(node: str, *, config: str = "lab", name: str | None = None, **metadata: Any) -> dict[str, Any]:
        """An inventory as an agent creates it; `metadata` replaces fields of it."""
        return {
            "apiVersion": API_VERSION,
            "kind": "NodeDeviceInventory",
            "metadata": {"name": name or f"{config}.{node}", "ownerReferences": [Release.owner(config)], **metadata},
            "spec": {"nodeName": node, "configName": config},
        }

    @staticmethod
    def owner(config: str, **other: Any) -> dict[str, Any]:
        return {"apiVersion": API_VERSION, "kind": "DevicePluginConfig", "name": config, "uid": "u-1", **other}

    @staticmethod
    def config(name: str, **spec: Any) -> dict[str, Any]:
        resource = {"name": "example.com/simulated", "devices": [{"simulated": {"count": 1}}]}
        return {
            "apiVersion": API_VERSION,
            "kind": "DevicePluginConfig",
            "metadata": {"name": name},
            "spec": {"resources": [resource], **spec},
        }

    @staticmethod
    def eventually(what: str, look: Callable[[], bool], *, seconds: float = 30) -> None:
        """Policies and roles reach the API server's own caches a moment after they are written."""
        deadline = time.monotonic() + seconds
        while not look():
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
            time.sleep(0.05)

    def wait_for_image_policy(self, *, refuses: bool) -> None:
        tried = self.config("tried", agent={"image": "a"})
        self.eventually(
            f"a configuration with an image is {'refused' if refuses else 'taken'}",
            lambda: (self.admin("POST", f"{CONFIGS}?dryRun=All", tried).code != 201) is refuses,
        )


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The chart with its default values."""
    profile = Profile(name=f"chart{os.getpid() % 1000}", nodes=0, control_plane_only=True, controller_manager=False)
    cluster = Cluster(profile)
    cluster.clean()
    try:
        cluster.up()
        release = Release(cluster, tmp_path_factory.mktemp("admin"))
        cluster.kubectl("create", "namespace", NAMESPACE)
        release.notes = release.helm("install").partition("NOTES:")[2]
        probe, foreign = release.agent_on("probe"), release.inventory("elsewhere")
        release.eventually(
            "the node policy is in force",
            lambda: "own node only" in probe("POST", f"{INVENTORIES}?dryRun=All", foreign).message,
        )
        release.wait_for_image_policy(refuses=True)
        yield release
    finally:
        cluster.clean()
