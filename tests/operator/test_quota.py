"""The commands of docs/quota.md on a real API server. No controller runs: the test sets what the quota's controller would."""

import re
from pathlib import Path

import pages
from kubeapi import Kube, eventually
from localcluster import Cluster

TEAM = "/api/v1/namespaces/team-a"


def in_force(kube: Kube, name: str) -> None:
    path = f"{TEAM}/resourcequotas/{name}"
    hard = kube.get(path)["spec"]["hard"]
    kube.patch(f"{path}/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})


def test_a_pod_beyond_the_quota_is_refused_and_limits_count_nothing(api: Cluster, kube: Kube, tmp_path: Path) -> None:
    page = pages.text("quota.md")
    for name, content in re.findall(r"^`(\w+\.yaml)`[^\n]*\n```yaml\n(.*?)```", page, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(content)
    (tmp_path / "three.yaml").write_text((tmp_path / "pods.yaml").read_text().replace("camera: 2", "camera: 3"))
    more = "kubectl create --dry-run=server -f three.yaml"
    shell = pages.shell(api, tmp_path, where=tmp_path)
    for command, shown in pages.steps("quota.md", "tests/operator/test_quota.py"):
        said = shell(command)
        assert pages.plain(said) == pages.plain(shown), command
        if command.startswith("kubectl create namespace"):
            kube.create(f"{TEAM}/serviceaccounts", {"metadata": {"name": "default"}})
            hard = {"limits.example.com/camera": "0"}
            kube.create(f"{TEAM}/resourcequotas", {"metadata": {"name": "limits"}, "spec": {"hard": hard}})
            in_force(kube, "limits")
        elif command == "kubectl apply -f quota.yaml":
            in_force(kube, "devices")
            eventually("the quota counts", lambda: "exceeded quota: devices" in shell(more))
