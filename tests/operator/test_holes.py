"""Unusual specs on a real API server: if CRD and `parse_spec` accept one, the DaemonSet must be accepted too."""

from collections.abc import Mapping
from typing import Any

import pytest
from bad_specs import config, entry
from device_operator.render.manifests import RenderSettings, render
from device_operator.spec.model import ConfigRef
from device_operator.spec.parsing import parse_spec
from kubeapi import CONFIGMAPS, CONFIGS, DAEMONSETS, NAMESPACE, Kube

WIDE = "x" * 63


def _pool(**fields: Any) -> Mapping[str, Any]:
    return config({"resources": [entry()], "nodePools": [{"name": "p" * 20, **fields}]}, name="c" * 40)


def _agent(**fields: Any) -> Mapping[str, Any]:
    return config({"resources": [entry()], "agent": fields})


def _expression(operator: str, *values: str) -> Mapping[str, Any]:
    return _pool(nodeSelectorTerms=[{"matchExpressions": [{"key": "a", "operator": operator, "values": [*values]}]}])


ODD = {
    "names as long as they may be": _pool(nodeSelector={f"{'a.' * 120}io/{WIDE}": WIDE, "empty": ""}),
    "a number that the scheduler reads": _expression("Gt", "9" * 18),
    "an empty value": _expression("In", ""),
    "node names": _pool(
        nodeSelectorTerms=[{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a.b-c"]}]}]
    ),
    "no tolerations": _pool(tolerations=[]),
    "a toleration of everything for a while": _pool(
        tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}]
    ),
    "as many as there are numbers": config({"resources": [entry()], "updateStrategy": {"maxUnavailable": 2**31 - 1}}),
    "all at once": config({"resources": [entry()], "updateStrategy": {"maxUnavailable": "100%"}}),
    "odd amounts": _agent(
        resources={"requests": {"cpu": "1e-3", "memory": ".5Gi"}, "limits": {"ephemeral-storage": "1n", "memory": "1E"}}
    ),
    "nothing asked for": _agent(resources={}),
    "a request without a limit": _agent(resources={"requests": {"cpu": 3}}),
    "text that YAML would swallow": _agent(env=[{"name": "A", "value": "\u2028 \x85\ufeff #: {}\n"}, {"name": "B"}]),
    "a root directory with odd characters": _agent(kubeletRootDir="/..var/lib: x/é"),
    "secrets": _agent(imagePullSecrets=[{"name": "a.b-c"}], imagePullPolicy="Never", image="a"),
}


@pytest.mark.parametrize("given", ODD.values(), ids=ODD.keys())
def test_an_accepted_spec_gives_an_accepted_daemonset(given: Mapping[str, Any], kube: Kube) -> None:
    kube.create(f"{CONFIGS}?dryRun=All&fieldValidation=Strict", given)
    made = render(
        ConfigRef(given["metadata"]["name"], "uid"),
        parse_spec(given),
        RenderSettings(namespace=NAMESPACE, agent_image="example.com/agent:1"),
    )
    for manifest in made:
        path = DAEMONSETS if manifest.kind == "DaemonSet" else CONFIGMAPS
        kube.create(f"{path}?dryRun=All&fieldValidation=Strict", manifest.body)
