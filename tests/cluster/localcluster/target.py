"""Where the demo runs: on a cluster of its own on this machine, or on the user's (`CLUSTER=existing`)."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Protocol

from localcluster import binaries
from localcluster.cluster import Cluster
from localcluster.console import LocalClusterError, say, step
from localcluster.images import Image, push
from localcluster.processes import run


class Target(Protocol):
    """What the demo needs of a cluster."""

    @property
    def kubectl_command(self) -> str:
        """How the user calls kubectl for this cluster."""

    def start(self, images: Sequence[Image]) -> None:
        """Starts the cluster, or checks that it is there; a new node may have the images from its start."""

    def stop(self) -> None: ...

    def publish(self, image: Image) -> str:
        """Brings an image to where the nodes find it and returns its reference there."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str: ...

    def helm(self, *arguments: str) -> str: ...


def chosen(environment: Mapping[str, str]) -> Target:
    """The target that CLUSTER, CONTEXT and REGISTRY name."""
    cluster = environment.get("CLUSTER", "")
    if cluster in ("", "local"):
        return OwnCluster()
    if cluster != "existing":
        raise LocalClusterError(f"CLUSTER={cluster} means nothing: leave it out, or say CLUSTER=existing")
    context, registry = environment.get("CONTEXT", ""), environment.get("REGISTRY", "")
    if not context:
        raise LocalClusterError(
            "CLUSTER=existing needs CONTEXT=<name>, so that no other cluster is changed by mistake; "
            "`kubectl config get-contexts` lists the names"
        )
    if context.startswith("kind-") and shutil.which("kind"):
        return ExistingCluster(context, registry="")
    if not registry:
        raise LocalClusterError(
            f"CLUSTER=existing CONTEXT={context} needs REGISTRY=<where to push>, a registry from which the nodes pull, "
            "e.g. REGISTRY=registry.example.com/team (contexts kind-... need none when `kind` is on PATH)"
        )
    return ExistingCluster(context, registry=registry)


class OwnCluster:
    """Two nodes on this machine, which `stop` removes without a trace."""

    def __init__(self) -> None:
        self._cluster = Cluster("demo")

    @property
    def kubectl_command(self) -> str:
        return f"{binaries.path('kubectl')} --kubeconfig {self._cluster.kubeconfig}"

    def start(self, images: Sequence[Image]) -> None:
        self._cluster.up(images=[image.archive for image in images])

    def stop(self) -> None:
        self._cluster.clean()
        left = self._cluster.leftovers()
        if left:
            raise LocalClusterError("the demo's cluster has left on this machine:\n" + "\n".join(left))
        say("the demo's cluster is gone, nothing of it is left; the programs and images stay in the cache")

    def publish(self, image: Image) -> str:
        self._cluster.load_image(image.archive)
        return image.reference

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._cluster.kubectl(*arguments, input=stdin)

    def helm(self, *arguments: str) -> str:
        return self._cluster.helm(*arguments)


class ExistingCluster:
    """A cluster of the user's, by its kubectl context; an empty registry means a kind cluster."""

    def __init__(self, context: str, *, registry: str) -> None:
        self._context = context
        self._registry = registry

    @property
    def kubectl_command(self) -> str:
        return f"kubectl --context {self._context}"

    def start(self, images: Sequence[Image]) -> None:
        if not shutil.which("kubectl"):
            raise LocalClusterError("CLUSTER=existing works with the kubectl on your PATH, and there is none")
        if not shutil.which("helm"):
            binaries.build(["helm"])
        self.kubectl("get", "--raw", "/readyz")

    def stop(self) -> None:
        """The cluster is not ours to stop."""

    def publish(self, image: Image) -> str:
        if self._registry:
            return push(image, registry=self._registry)
        name = self._context.removeprefix("kind-")
        with step(f"loading {image.reference} into the kind cluster {name}"):
            run(["kind", "load", "image-archive", image.archive, "--name", name])
        return image.reference

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return run(["kubectl", "--context", self._context, *arguments], stdin=stdin)

    def helm(self, *arguments: str) -> str:
        program = shutil.which("helm") or binaries.path("helm")
        return run([program, "--kube-context", self._context, *arguments])
