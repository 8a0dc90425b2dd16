"""`up` on a cluster that runs: what it mends, what it leaves alone, and what it says when a service ends."""

import hashlib
import os
import signal
from dataclasses import replace

import pytest
from localcluster import Cluster, LocalClusterError, Profile, places

pytestmark = pytest.mark.disruptive

PROXY = "node-2.kube-proxy"


def test_the_start_of_a_service_leaves_the_others_and_their_files_alone(cluster: Cluster) -> None:
    folder = cluster.state / "nodes" / "node-2"
    names = ("kube-proxy.json", "containerd.toml", "kubelet.json")

    def noticed() -> list[tuple[int, int]]:
        return [(found.st_ino, found.st_mtime_ns) for name in names if (found := (folder / name).stat())]

    before, files = cluster.pids, noticed()
    cluster.restart_service(2, "kubelet")
    cluster.up(nodes=2)
    after = cluster.pids
    assert noticed() == files
    assert {name for name in before if after.get(name) != before[name]} == {"node-2.kubelet"}


def test_a_service_that_is_gone_is_started_again(cluster: Cluster) -> None:
    cluster.stop_service(2, "kube-proxy")
    assert PROXY not in cluster.pids
    cluster.up(nodes=2)
    assert PROXY in cluster.pids


def test_a_service_that_ends_at_its_start_is_named_with_its_reason(cluster: Cluster) -> None:
    broken = Cluster(replace(cluster.profile, proxy_mode="no-such-mode"), state=cluster.state)
    cluster.stop_service(2, "kube-proxy")
    try:
        with pytest.raises(LocalClusterError, match=r"(?s)kube-proxy.* ended.*no-such-mode"):
            broken.up(nodes=2)
    finally:
        cluster.up(nodes=2)


def test_an_api_server_that_was_told_to_end_is_waited_for_and_started_again() -> None:
    name = f"ending-{hashlib.sha256(str(places.CHECKOUT).encode()).hexdigest()[:6]}"
    control_plane = Cluster(Profile(name=name, nodes=0, control_plane_only=True, controller_manager=False))
    control_plane.clean()
    try:
        control_plane.up()
        ending = control_plane.pids["apiserver"]
        os.kill(ending, signal.SIGTERM)
        control_plane.up()
        assert control_plane.pids["apiserver"] != ending
        control_plane.kubectl("get", "--raw", "/readyz")
    finally:
        control_plane.clean()
