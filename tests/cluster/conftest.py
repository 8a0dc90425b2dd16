"""One real cluster for the whole level, with the product installed from its own chart and images."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kube import NAMESPACE, Kube
from localcluster import Cluster, images, places
from localcluster.profile import named

CHART = Path(__file__).resolve().parents[2] / "charts" / "device-operator"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "disruptive: restarts or kills parts of the cluster; runs after the others")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("disruptive") is not None)


class Installation:
    """The helm release under test."""

    def __init__(self, cluster: Cluster, *, values: list[str]) -> None:
        self.cluster = cluster
        self.values = values

    def install(self) -> None:
        self._helm("install")

    def upgrade(self, *more: str) -> None:
        self._helm("upgrade", *more)

    def uninstall(self) -> None:
        self.cluster.helm("uninstall", "device-operator", "-n", NAMESPACE, "--wait", "--timeout", "90s")

    def _helm(self, verb: str, *more: str) -> None:
        self.cluster.helm(
            verb, "device-operator", str(CHART), "-n", NAMESPACE, "--wait", "--timeout", "120s", *self.values, *more
        )


@pytest.fixture(scope="session")
def built() -> dict[str, images.Image]:
    """The product's images, built from the Dockerfiles where the tree has changed."""
    return images.build()


@pytest.fixture(scope="session")
def cluster(built: dict[str, images.Image]) -> Iterator[Cluster]:
    name = os.environ.get("TEST_CLUSTER", "test")  # another name runs beside it
    cluster = Cluster(replace(named(name), nvidia_root=places.clusters() / name / "nvidia-driver"))
    cluster.clean()
    cluster.up(nodes=2, images=[image.archive for image in (*built.values(), images.python())])
    try:
        yield cluster
    finally:
        cluster.clean()
        assert cluster.leftovers() == []


@pytest.fixture(scope="session")
def installation(cluster: Cluster, built: dict[str, images.Image]) -> Installation:
    """The product on the cluster: the chart installed, nodes labelled as pools want them."""
    values = []
    for name, image in built.items():
        values += ["--set", f"{name}.image.repository={image.repository}", "--set", f"{name}.image.tag={image.tag}"]
        values += ["--set", f"{name}.image.pullPolicy=IfNotPresent"]
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
    cluster.kubectl("label", "node", "node-1", "hardware=edge")
    cluster.kubectl("label", "node", "node-2", "hardware=lab")
    installed = Installation(cluster, values=values)
    installed.install()
    return installed


@pytest.fixture(scope="session")
def kube(cluster: Cluster, installation: Installation) -> Kube:
    return Kube(cluster, image=images.PYTHON)
