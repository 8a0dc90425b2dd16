"""Agents' pods with each way to the NVIDIA driver, on a real API server, which refuses contradictory rights."""

from typing import Any

import pytest
from bad_specs import config
from device_operator.render.manifests import render
from device_operator.spec.parsing import parse_spec
from kubeapi import DAEMONSETS, Kube, Object
from unit.operator_core import build

ACCESSES: list[dict[str, Any]] = [
    {"runtimeClass": "nvidia"},
    {"runtimeClass": "nvidia", "cdiDevice": "management.nvidia.com/gpu=all"},
    {"cdiDevice": "management.nvidia.com/gpu=all"},
    {"driverRoot": "/"},
    {"driverRoot": "/run/nvidia/driver"},
]


def subset(wanted: Any, stored: Any) -> bool:
    """Everything rendered is kept; the server may add defaults."""
    if isinstance(wanted, dict):
        return all(key in stored and subset(value, stored[key]) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(stored) and all(map(subset, wanted, stored))
    return bool(wanted == stored)


@pytest.mark.parametrize("preset", ["nvidia-gpu-cdi", "nvidia-mig-cdi"])
@pytest.mark.parametrize("access", ACCESSES, ids=" ".join)
def test_the_api_server_keeps_the_daemonset_as_rendered(kube: Kube, preset: str, access: dict[str, Any]) -> None:
    resources = [{"name": "nvidia.com/gpu", "preset": preset}]
    agent = {"driverAccess": access, "deviceMetrics": "Prometheus", "nodeFeatures": "NFD"}
    spec = parse_spec(config({"resources": resources, "agent": agent}))
    _, daemonset = render(build.LAB, spec, build.SETTINGS)
    body: Object = daemonset.body
    # without the owner reference, because the owner does not exist
    body = {**body, "metadata": {k: v for k, v in body["metadata"].items() if k != "ownerReferences"}}
    stored = kube.create(f"{DAEMONSETS}?dryRun=All&fieldValidation=Strict", body)
    assert subset(body["spec"]["template"]["spec"]["containers"], stored["spec"]["template"]["spec"]["containers"])
    rendered, kept = body["spec"]["template"]["spec"], stored["spec"]["template"]["spec"]
    assert kept.get("runtimeClassName") == rendered.get("runtimeClassName")
    assert kept["securityContext"] == rendered["securityContext"]
