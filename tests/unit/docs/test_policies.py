"""docs/policy-engines.md says what an agent's pod has: all of it, and nothing that it has not."""

from typing import Any

import pytest
from device_operator.render.manifests import render
from unit.docs.pages import CHECKOUT
from unit.operator_core.build import LAB, SETTINGS, entry, spec

PAGE = (CHECKOUT / "docs/policy-engines.md").read_text()
GPU = {"name": "nvidia.com/gpu", "preset": "nvidia-gpu-cdi"}
MIG = {"name": "nvidia.com/gpu", "preset": "nvidia-mig-cdi"}


def row(name: str) -> tuple[str, str]:
    """What the pod always has, and what it has if asked for."""
    _, _, rest = PAGE.partition(f"\n| {name} | ")
    always, _, asked = rest.partition("\n")[0].removesuffix(" |").partition(" | ")
    return always, asked


def pod(resource: dict[str, Any], **agent: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Its spec, and its labels."""
    (daemonset,) = (
        m.body for m in render(LAB, spec({"resources": [resource], "agent": agent}), SETTINGS) if m.kind == "DaemonSet"
    )
    template = daemonset["spec"]["template"]
    assert daemonset["metadata"]["labels"] == template["metadata"]["labels"]
    return template["spec"], template["metadata"]["labels"]


def paths(found: dict[str, Any]) -> set[str]:
    return {volume["hostPath"]["path"] for volume in found["volumes"] if "hostPath" in volume}


def test_every_agent():
    found, labels = pod(entry())
    (container,) = found["containers"]
    always, _ = row("host paths")
    assert {f"`{path}`" for path in paths(found)} == {word.rstrip(",;") for word in always.split() if "`/" in word}
    writable = [m["name"] for m in container["volumeMounts"] if not m.get("readOnly")]
    assert writable == ["device-plugins"]
    assert found["securityContext"]["runAsUser"] == 0
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["privileged"] is False
    assert f"`{found['securityContext']['seLinuxOptions']['type']}`" in row("SELinux type")[0]
    assert f"`{found['priorityClassName']}`" in row("priority class")[0]
    assert (found["hostNetwork"], found["hostPID"]) == (False, False)
    assert all("hostPort" not in port for port in container["ports"])
    assert all(label in labels.items() for label in [("app.kubernetes.io/name", "device-agent")])
    assert "`app.kubernetes.io/name=device-agent`" in PAGE


@pytest.mark.parametrize(
    ("resource", "agent", "where", "said"),
    [
        (GPU, {"driverAccess": {"driverRoot": "/"}}, "privileged", "driverAccess.driverRoot"),
        (MIG, {"driverAccess": {"runtimeClass": "nvidia"}}, "user", "SYS_ADMIN"),
        (GPU, {"driverAccess": {"driverRoot": "/"}}, "SELinux type", "spc_t"),
        (GPU, {"driverAccess": {"cdiDevice": "a.com/b=c"}, "nodeFeatures": "NFD"}, "host paths", "nodeFeatures: NFD"),
    ],
)
def test_what_an_agent_has_if_it_is_asked_for(resource: dict[str, Any], agent: dict[str, Any], where: str, said: str):
    plain, _ = pod(entry())
    found, _ = pod(resource, **agent)
    security = found["containers"][0]["securityContext"]
    differs = {
        "privileged": security["privileged"],
        "user": "SYS_ADMIN" in security["capabilities"].get("add", ()) if "capabilities" in security else False,
        "SELinux type": found["securityContext"]["seLinuxOptions"]["type"] == "spc_t",
        "host paths": paths(found) > paths(plain),
    }
    assert differs[where]
    assert said in row(where)[1]
