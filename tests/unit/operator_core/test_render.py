"""The manifests of a pool: what is in them, what they may do on a node, and what changes them."""

import json
from typing import Any

import jinja2
import kubernetes_validate
import pytest
import yaml
from device_agent.contract import names
from device_agent.contract.document import parse
from device_operator.render import manifests as module
from device_operator.render.manifests import ANNOTATION_CONFIG_HASH, ANNOTATION_TEMPLATE, Manifest, dump_yaml, render
from device_operator.spec.model import ConfigRef
from device_operator.spec.placement import matches
from device_operator.spec.scheduling import Expression, Operator, Term, selects
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.operator_core.build import LAB, SETTINGS, entry, node, spec

TWO_POOLS = {
    "nodePools": [
        {
            "name": "edge",
            "nodeSelector": {"hardware": "edge", "disk": "ssd"},
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["3"]}]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
            ],
            "tolerations": [
                {"key": "edge", "value": "yes", "effect": "NoSchedule"},
                {"key": "gone", "operator": "Exists"},
            ],
            "agent": {"kubeletRootDir": "/data/kubelet", "logLevel": "Debug"},
        },
        {"name": "lab", "nodeSelector": {"hardware": "lab"}},
    ],
    "updateStrategy": {"maxUnavailable": 2},
    "agent": {
        "image": "mirror.example.com/agent:2",
        "imagePullSecrets": [{"name": "mirror"}],
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "priorityClassName": "important",
    },
}


def rendered(**fields: Any) -> dict[tuple[str, str], Manifest]:
    return {(m.pool, m.kind): m for m in render(LAB, spec(**fields), SETTINGS)}


def pod_spec(pool: str = "default", **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = rendered(**fields)[pool, "DaemonSet"].body["spec"]["template"]["spec"]
    return found


def test_a_pool_is_a_configmap_and_a_daemonset_of_the_objects():
    found = render(LAB, spec(**TWO_POOLS), SETTINGS)
    assert [(m.pool, m.kind) for m in found] == [
        ("edge", "ConfigMap"),
        ("edge", "DaemonSet"),
        ("lab", "ConfigMap"),
        ("lab", "DaemonSet"),
    ]
    for m in found:
        metadata = m.body["metadata"]
        assert metadata["name"] == m.name
        assert m.name.startswith(names.pool_object_name("lab", m.pool))
        assert metadata["namespace"] == "device-operator"
        assert metadata["labels"][names.LABEL_CONFIG] == "lab"
        assert metadata["labels"][names.LABEL_POOL] == m.pool
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "device-operator.io/v1alpha1",
                "kind": "DevicePluginConfig",
                "name": "lab",
                "uid": "uid-lab",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


@pytest.mark.parametrize("version", ["1.32", "1.33", "1.34", "1.35", "1.36", "1.37"])
def test_manifests_are_valid_in_every_supported_version(version: str):
    for fields in ({}, TWO_POOLS):
        for m in render(LAB, spec(**fields), SETTINGS):
            kubernetes_validate.validate(m.body, version, strict=True)


def test_the_configmap_holds_the_document_and_names_its_contract_version():
    found = rendered()["default", "ConfigMap"]
    assert found.name.endswith("-v1")
    (text,) = found.body["data"].values()
    assert parse(text) == spec().document(spec().pools[0])
    assert found.body["metadata"]["annotations"][ANNOTATION_CONFIG_HASH] == found.config_hash
    (volume,) = (v for v in pod_spec()["volumes"] if v["name"] == "config")
    assert volume["configMap"] == {"name": found.name}


def test_an_agent_has_the_rights_it_needs_and_no_others():
    pod = pod_spec()
    (container,) = pod["containers"]
    assert "initContainers" not in pod
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"type": "container_device_plugin_t"},
    }
    assert (pod["hostNetwork"], pod["hostPID"]) == (False, False)
    paths = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    mounts = {m["name"]: (m["mountPath"], m.get("readOnly", False)) for m in container["volumeMounts"]}
    assert {paths.get(name, name): mount for name, mount in mounts.items()} == {
        "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", False),
        "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", True),
        "/dev": ("/host/dev", True),
        "/sys": ("/host/sys", True),
        "config": ("/etc/device-operator", True),
    }
    assert all("subPath" not in m for m in container["volumeMounts"])  # a subPath never sees a new configuration


def test_an_agent_is_told_who_it_is():
    (container,) = pod_spec("edge", **TWO_POOLS)["containers"]
    env = {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}
    assert env == {
        "NODE_NAME": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}},
        "POD_NAMESPACE": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        "POD_NAME": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
        "CONFIG_NAME": "lab",
        "CONFIG_UID": "uid-lab",
        "POOL_NAME": "edge",
        "LOG_LEVEL": "Debug",
        "HTTPS_PROXY": "http://proxy",
    }
    assert container["args"] == ["serve"]
    assert container["ports"][0]["containerPort"] == 9808
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_settings_of_the_object_override_those_of_the_chart():
    pod = pod_spec("edge", **TWO_POOLS)
    (container,) = pod["containers"]
    assert container["image"] == "mirror.example.com/agent:2"
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert pod["imagePullSecrets"] == [{"name": "mirror"}]
    assert pod["priorityClassName"] == "important"
    assert {"path": "/data/kubelet/pod-resources", "type": "Directory"} in [v.get("hostPath") for v in pod["volumes"]]
    assert pod["tolerations"] == [
        {"key": "edge", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "gone", "operator": "Exists"},
    ]
    strategy = rendered(**TWO_POOLS)["edge", "DaemonSet"].body["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}


def test_settings_of_the_chart_are_the_defaults_of_the_object():
    pod = pod_spec()
    (container,) = pod["containers"]
    assert container["image"] == SETTINGS.agent_image
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"]["limits"] == {"memory": "256Mi"}
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["imagePullSecrets"] == []
    assert pod["serviceAccountName"] == "device-agent"


def test_an_empty_list_of_tolerations_tolerates_nothing():
    assert pod_spec("a", nodePools=[{"name": "a", "tolerations": []}])["tolerations"] == []


@pytest.mark.parametrize("pool", ["edge", "lab"])
def test_the_affinity_selects_the_nodes_that_the_pool_matches(pool: str):
    found = spec(**TWO_POOLS)
    (wanted,) = (p for p in found.pools if p.name == pool)
    required = pod_spec(pool, **TWO_POOLS)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [
        Term(*(_expressions(term.get(key, [])) for key in ("matchExpressions", "matchFields")))
        for term in required["nodeSelectorTerms"]
    ]
    for name in ("node-1", "node-2"):
        for os in ("linux", "windows"):
            for hardware in ("edge", "lab"):
                for rank in ("1", "9"):
                    labels = {"kubernetes.io/os": os, "hardware": hardware, "disk": "ssd", "rank": rank}
                    here = node(name, labels=labels)
                    assert selects(selector={}, terms=terms, name=name, labels=labels) == matches(wanted, here)


def _expressions(given: list[dict[str, Any]]) -> tuple[Expression, ...]:
    return tuple(Expression(e["key"], Operator(e["operator"]), tuple(e.get("values", ()))) for e in given)


def test_equal_input_gives_equal_bytes():
    fields = {**TWO_POOLS, "agent": dict(reversed(TWO_POOLS["agent"].items()))}  # type: ignore[attr-defined]
    assert dump_yaml(render(LAB, spec(**TWO_POOLS), SETTINGS)) == dump_yaml(render(LAB, spec(**fields), SETTINGS))


def test_the_yaml_is_the_manifests():
    found = render(LAB, spec(**TWO_POOLS), SETTINGS)
    assert list(yaml.safe_load_all(dump_yaml(found))) == [m.body for m in found]


def test_a_changed_configuration_rolls_no_pod():
    before, after = rendered(), rendered(resources=[entry(sharing={"replicas": 5})])
    key = ("default", "DaemonSet")
    assert before[key].config_hash != after[key].config_hash
    assert before[key].hash != after[key].hash
    assert before[key].body["spec"] == after[key].body["spec"]
    assert before[key].template_hash == after[key].template_hash


@pytest.mark.parametrize(
    "agent", [{"image": "b:2"}, {"logLevel": "Debug"}, {"resources": {}}, {"env": [{"name": "A"}]}]
)
def test_a_changed_agent_rolls_pods_and_the_template_says_so(agent: dict[str, Any]):
    before, after = rendered()["default", "DaemonSet"], rendered(agent=agent)["default", "DaemonSet"]
    assert before.template_hash != after.template_hash
    assert after.body["spec"]["template"]["metadata"]["annotations"] == {ANNOTATION_TEMPLATE: after.template_hash}
    assert before.config_hash == after.config_hash


def test_the_selector_has_only_configuration_and_pool():
    for fields in ({}, {"agent": {"image": "b:2"}}):
        selector = rendered(**fields)["default", "DaemonSet"].body["spec"]["selector"]
        assert selector == {"matchLabels": {names.LABEL_CONFIG: "lab", names.LABEL_POOL: "default"}}


def test_a_template_that_names_an_unknown_value_is_an_error(monkeypatch: pytest.MonkeyPatch):
    environment = module._environment()
    with pytest.raises(jinja2.UndefinedError):
        environment.from_string("{{ agent.imgae }}").render(agent=SETTINGS.agent())


@settings(max_examples=60, deadline=None)
@example(value="a\u2028  b\u2029  c", uid="a")
@given(
    value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    uid=st.text("ab-", min_size=1, max_size=8),
)
def test_any_text_survives_the_template(value: str, uid: str):
    fields = {
        "resources": [entry(inject={"env": [{"name": "A", "value": value.replace("{", "{{").replace("}", "}}")}]})]
    }
    agent = {"env": [{"name": "A", "value": value}]}
    config_map, daemon_set = render(ConfigRef("lab", uid), spec(**fields, agent=agent), SETTINGS)
    document = parse(config_map.body["data"][names.CONFIG_FILE])
    assert document.resources[0].inject.env[0].value == fields["resources"][0]["inject"]["env"][0]["value"]  # type: ignore[index]
    env = daemon_set.body["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env[-1] == {"name": "A", "value": value}
    assert json.loads(json.dumps(daemon_set.body)) == daemon_set.body
