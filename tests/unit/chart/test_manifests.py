"""What the chart renders is valid on every supported Kubernetes, and what the values say."""

import json
from typing import Any

import kubernetes_validate
import pytest

KUBERNETES = ("1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
# Kinds of the Prometheus Operator: Kubernetes' schemas do not have them.
UNKNOWN_TO_KUBERNETES = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}

EVERYTHING = {
    "commonLabels": {"team": "hardware"},
    "operator": {
        "image": {"digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "system-cluster-critical",
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "role", "operator": "Exists"}]}]
                }
            }
        },
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "matchLabelKeys": ["pod-template-hash"],
            },
            {
                "maxSkew": 2,
                "topologyKey": "host",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"a": "b"}},
            },
        ],
        "podLabels": {"sidecar": "no"},
        "podAnnotations": {"example.com/a": "true"},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "serviceAccount": {"annotations": {"example.com/role": "x"}},
        "settings": {"workers": 2, "nodeSettleSeconds": 0.5},
    },
    "agent": {
        "imagePullSecrets": [{"name": "registry"}],
        "criticalPodsQuota": {"enabled": True},
        "serviceAccount": {"annotations": {"example.com/role": "y"}},
    },
    "metrics": {
        "service": {"annotations": {"prometheus.io/scrape": "true"}},
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "interval": "30s",
            "scrapeTimeout": "10s",
        },
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s", "scrapeTimeout": "10s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "grafanaDashboards": {"enabled": True, "annotations": {"grafana_folder": "Devices"}, "namespace": "monitoring"},
    },
    "networkPolicy": {
        "enabled": True,
        "apiServerCIDRs": ["10.0.0.1/32", "fd00::/8"],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "extraEgress": [{"ports": [{"protocol": "UDP", "port": 53}]}],
    },
}
NOTHING = {
    "crds": {"enabled": False},
    "operator": {
        "replicas": 1,
        "podDisruptionBudget": {"enabled": False},
        "topologySpreadConstraints": [],
        "nodeSelector": {"kubernetes.io/os": None},
        "serviceAccount": {"create": False, "name": "mine"},
    },
    "agent": {"allowImageOverride": True, "serviceAccount": {"create": False, "name": "theirs"}},
    "rbac": {"create": False},
    "admissionPolicy": {"enabled": False},
    "metrics": {"service": {"enabled": False}},
}
VARIANTS = {
    "defaults": {},
    "everything": EVERYTHING,
    "nothing": NOTHING,
    "recreate": {"operator": {"strategy": {"type": "Recreate", "rollingUpdate": None}}},
    "names": {"fullnameOverride": "f" * 63, "nameOverride": "n" * 63, "namespaceOverride": "hardware"},
}


def by_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {o["metadata"]["name"]: o for o in objects if o["kind"] == kind}


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [found] = by_kind(objects, kind).values()
    return found


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_valid_in_every_supported_kubernetes(chart, kubernetes):
    seen = set()
    for name, values in VARIANTS.items():
        for o in chart.template(values, kubernetes=kubernetes):
            text = json.dumps(o, sort_keys=True)
            if text in seen or o["kind"] in UNKNOWN_TO_KUBERNETES:
                continue
            seen.add(text)
            try:
                kubernetes_validate.validate(o, kubernetes, strict=True)
            except kubernetes_validate.ValidationError as error:
                raise AssertionError(f"{name}: {o['kind']} {o['metadata']['name']}: {error}") from error
    assert len(seen) > 30


def test_the_schemas_do_find_a_misspelt_field(objects):
    deployment = json.loads(json.dumps(one(objects, "Deployment")))
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.36", strict=True)


def test_names_are_unique_and_short_enough(chart):
    for values in VARIANTS.values():
        rendered = chart.template(values, release="r" * 53)
        keys = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in rendered]
        assert len(keys) == len(set(keys))
        crds = {key for key in keys if key[0] == "CustomResourceDefinition"}
        assert all(len(name) <= 63 for _, _, name in set(keys) - crds)
        for o in rendered:
            assert all(len(value) <= 63 for value in o["metadata"].get("labels", {}).values())


def test_namespaced_objects_live_in_one_namespace_but_for_the_events_role(chart):
    rendered = chart.template({"namespaceOverride": "hardware"}, namespace="devices")
    elsewhere = {
        (o["kind"], o["metadata"]["name"], namespace)
        for o in rendered
        if (namespace := o["metadata"].get("namespace")) not in {None, "hardware"}
    }
    assert elsewhere == {
        ("Role", "do-device-operator-events", "default"),
        ("RoleBinding", "do-device-operator-events", "default"),
    }
    assert "devices" not in json.dumps([o for o in rendered if o["kind"] != "CustomResourceDefinition"]).split('"')


def test_every_binding_finds_its_role_and_account(chart):
    rendered = chart.template(
        {"operator": {"serviceAccount": {"name": "op"}}, "agent": {"serviceAccount": {"name": "ag"}}}
    )
    accounts = {(o["metadata"]["namespace"], o["metadata"]["name"]) for o in rendered if o["kind"] == "ServiceAccount"}
    for binding in [o for o in rendered if o["kind"] in {"RoleBinding", "ClusterRoleBinding"}]:
        [role] = [
            o
            for o in rendered
            if o["kind"] == binding["roleRef"]["kind"]
            and o["metadata"]["name"] == binding["roleRef"]["name"]
            and o["metadata"].get("namespace") == binding["metadata"].get("namespace")
        ]
        assert role["rules"]
        for subject in binding["subjects"]:
            assert (subject["namespace"], subject["name"]) in accounts


def test_the_deployment_selects_its_own_pods_and_everything_else_follows(chart):
    rendered = chart.template(EVERYTHING)
    deployment = one(rendered, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels["sidecar"] == "no"
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert one(rendered, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == selector
    assert one(rendered, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == selector
    assert one(rendered, "Service")["spec"]["selector"] == selector
    own, given = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert own["labelSelector"]["matchLabels"] == selector
    assert given["labelSelector"]["matchLabels"] == {"a": "b"}
    service = one(rendered, "Service")
    monitor = one(rendered, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_series_of_agents_keep_the_labels_of_who_holds_a_device(chart):
    (endpoint,) = one(chart.template(EVERYTHING), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True


def test_the_selector_does_not_move_with_the_version(chart, objects):
    """A Deployment's selector is immutable: one that held a version could never be upgraded."""
    text = json.dumps(one(objects, "Deployment")["spec"]["selector"])
    assert "0.1.0" not in text
    assert set(one(objects, "Deployment")["spec"]["selector"]["matchLabels"]) == {
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/component",
    }


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "device-operator:0.1.0"),
        ({"tag": "dev"}, "device-operator:dev"),
        ({"repository": "localhost:5000/x/op", "tag": "1"}, "localhost:5000/x/op:1"),
        ({"tag": "dev", "digest": f"sha256:{'b' * 64}"}, f"device-operator@sha256:{'b' * 64}"),
    ],
)
def test_the_image_is_named_by_tag_or_digest(chart, image, reference):
    rendered = chart.template({"operator": {"image": image}})
    [container] = one(rendered, "Deployment")["spec"]["template"]["spec"]["containers"]
    [test] = one(rendered, "Pod")["spec"]["containers"]
    assert container["image"] == test["image"] == reference


def test_monitors_and_network_policy_only_when_asked_for(objects):
    kinds = {o["kind"] for o in objects}
    assert kinds.isdisjoint(
        {"ServiceMonitor", "PodMonitor", "PrometheusRule", "NetworkPolicy", "ResourceQuota", "ConfigMap"}
    )


def test_equal_values_give_equal_manifests(chart):
    assert chart.template(EVERYTHING) == chart.template(EVERYTHING)
