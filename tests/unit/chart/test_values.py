"""Values: a misspelt or ill-typed one never goes unnoticed, and each is explained."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from device_operator.runtime.settings import ENV_PREFIX, Settings, flag_of, variable_of

GIVEN_BY_OTHER_VALUES = {  # settings of `device-operator run` that have a value of their own, or none on purpose
    "namespace",
    "agent_image",
    "agent_image_pull_policy",
    "agent_image_pull_secrets",
    "agent_service_account",
    "agent_selinux_type",
    "lease_name",
    "lease_duration_seconds",
    "lease_renew_deadline_seconds",
    "lease_retry_seconds",
    "log_format",
    "log_level",
    "kubeconfig",  # a pod has its own token
    "context",
    "identity",
    "listen",  # the container's port is fixed: probes, Service and policy name it
}
FREE = {  # maps whose keys are the admin's own, or Kubernetes' to check
    "commonLabels",
    "global",
    "operator.affinity.nodeAffinity",
    "operator.affinity.podAffinity",
    "operator.affinity.podAntiAffinity",
    "operator.nodeSelector",
    "operator.podLabels",
    "operator.podAnnotations",
    "operator.serviceAccount.annotations",
    "agent.serviceAccount.annotations",
    "operator.resources.requests",
    "operator.resources.limits",
    "tests.resources.requests",
    "tests.resources.limits",
    "metrics.service.annotations",
    "metrics.serviceMonitor.labels",
    "metrics.podMonitor.labels",
    "metrics.prometheusRule.labels",
    "metrics.grafanaDashboards.labels",
    "metrics.grafanaDashboards.annotations",
}


@pytest.fixture(scope="module")
def schema(chart) -> dict[str, Any]:
    return json.loads((chart.path / "values.schema.json").read_text())


@pytest.fixture(scope="module")
def defaults(chart) -> dict[str, Any]:
    return yaml.safe_load((chart.path / "values.yaml").read_text())


def maps(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every map of the schema that is not an item of a list, with its path."""

    def walk(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]]
        for alternative in node.get("anyOf", ()):
            yield from walk(alternative, path)
        if node.get("type") == "object":
            yield path, node
            for name, child in node.get("properties", {}).items():
                yield from walk(child, f"{path}.{name}" if path else name)

    return walk(schema, "")


def nested(path: str, value: Any) -> Any:
    """{a: {b: value}} for the path a.b."""
    for part in reversed(path.split(".") if path else []):
        value = {part: value}
    return value


def test_lints_without_a_warning(chart):
    done = chart.run("lint", "--strict", str(chart.path))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_every_map_of_ours_refuses_unknown_names(schema):
    open_maps = {path for path, node in maps(schema) if node.get("additionalProperties", True) is not False}
    assert open_maps == FREE


def test_a_misspelt_value_is_refused_with_its_path(chart, schema):
    for path in {path for path, node in maps(schema) if path not in FREE}:
        said = chart.refusal(nested(path, {"mispelt": 1}))
        assert "'mispelt' not allowed" in said, path
        assert f"at '{'/' + path.replace('.', '/') if path else ''}'" in said


def test_values_and_schema_name_the_same_things(schema, defaults):
    def names(node: Any, path: str = "") -> Iterator[str]:
        if isinstance(node, dict) and path not in FREE:
            for name, child in node.items():
                here = f"{path}.{name}" if path else name
                yield here
                yield from names(child, here)

    known = {
        f"{path}.{name}" if path else name: name in node.get("required", ())
        for path, node in maps(schema)
        for name in node.get("properties", {})
    }
    assert set(names(defaults)) <= set(known)
    assert {name for name, required in known.items() if required} <= set(names(defaults))


def test_every_value_is_explained(chart):
    """By a comment above the value, above its group of lines, or above a map that contains it."""
    explained: dict[int, bool] = {}  # depth -> of the key last seen there
    missing, comment, above = [], False, -1
    for line in (chart.path / "values.yaml").read_text().splitlines():
        found = re.match(r"( *)([A-Za-z]+):(.*)", line)
        if found:
            depth = len(found[1])
            neighbour = above == depth and explained[depth]
            explained = {d: known for d, known in explained.items() if d < depth}
            explained[depth] = comment or neighbour or any(explained.values())
            if found[3] and not explained[depth]:
                missing.append(line.strip())
        comment = line.lstrip().startswith("#")
        above = len(found[1]) if found else -1
    assert missing == []


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"operator": {"replicas": "two"}}, "/operator/replicas"),
        ({"operator": {"image": {"digest": "sha256:short"}}}, "/operator/image/digest"),
        ({"operator": {"image": {"pullPolicy": "always"}}}, "/operator/image/pullPolicy"),
        ({"operator": {"log": {"level": "trace"}}}, "/operator/log/level"),
        ({"operator": {"settings": {"resyncSeconds": 0}}}, "/operator/settings/resyncSeconds"),
        ({"operator": {"tolerations": [{"key": "a", "operater": "Exists"}]}}, "/operator/tolerations/0"),
        ({"operator": {"resources": {"request": {}}}}, "/operator/resources"),
        ({"agent": {"image": {"repository": "https://example.com/agent"}}}, "/agent/image/repository"),
        ({"agent": {"imagePullSecrets": ["registry"]}}, "/agent/imagePullSecrets/0"),
        ({"agent": {"allowImageOverride": "false"}}, "/agent/allowImageOverride"),
        ({"commonLabels": {"app.kubernetes.io/name": "mine"}}, "/commonLabels/app.kubernetes.io~1name"),
        ({"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}}, "/networkPolicy/apiServerCIDRs/0"),
        ({"metrics": {"podMonitor": {"interval": "30"}}}, "/metrics/podMonitor/interval"),
        (
            {"metrics": {"prometheusRule": {"alerts": {"DeviceGpuHot": {"for": "30"}}}}},
            "/metrics/prometheusRule/alerts/DeviceGpuHot/for",
        ),
    ],
)
def test_an_impossible_value_is_refused_with_its_path(chart, values, named):
    assert f"at '{named}'" in chart.refusal(values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"operator": {"serviceAccount": {"create": False}}}, "set operator.serviceAccount.name"),
        ({"agent": {"serviceAccount": {"create": False}}}, "set agent.serviceAccount.name"),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "needs metrics.service.enabled",
        ),
        ({"operator": {"lease": {"retrySeconds": 10}}}, "retrySeconds must be below renewDeadlineSeconds"),
        ({"operator": {"lease": {"durationSeconds": 9.5}}}, "and that below durationSeconds"),
    ],
)
def test_values_that_exclude_each_other_are_refused_with_the_way_out(chart, values, said):
    assert said in chart.refusal(values)


def test_an_older_kubernetes_is_refused(chart):
    done = chart.run("template", "do", str(chart.path), "--kube-version", "1.31.9")
    assert done.returncode != 0
    assert "kubeVersion: >=1.32.0-0" in done.stderr


def test_every_setting_of_the_operator_can_be_set(schema):
    offered = set(schema["properties"]["operator"]["properties"]["settings"]["properties"])
    remaining = [f.name for f in dataclasses.fields(Settings) if f.name not in GIVEN_BY_OTHER_VALUES]
    assert offered == {re.sub(r"_(.)", lambda part: part[1].upper(), name) for name in remaining}


def test_settings_reach_the_operator_as_its_flags(chart, schema):
    names = schema["properties"]["operator"]["properties"]["settings"]["properties"]
    rendered = chart.template({"operator": {"settings": dict.fromkeys(names, 7)}})
    [deployment] = [o for o in rendered if o["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    given = {argument.partition("=")[0] for argument in container["args"]}
    variables = {variable_of(f.name) for f in dataclasses.fields(Settings)}
    assert {e["name"] for e in container["env"] if e["name"].startswith(ENV_PREFIX)} <= variables
    flags = {f"--{flag_of(f.name)}" for f in dataclasses.fields(Settings)}
    assert given - {"run"} <= flags
    assert {
        f"--{flag_of(f.name)}" for f in dataclasses.fields(Settings) if f.name not in GIVEN_BY_OTHER_VALUES
    } <= given


def test_arguments_are_what_the_operator_parses(chart):
    """The operator's own parser reads the rendered arguments: same names, same choices, same order of durations."""
    import argparse

    from device_operator.offline import render_settings
    from device_operator.runtime import settings

    values = {
        "agent": {
            "image": {
                "repository": "registry.example:5000/agent",
                "digest": f"sha256:{'a' * 64}",
                "pullPolicy": "Always",
            },
            "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
        },
        "operator": {"log": {"level": "debug", "format": "text"}, "settings": {"workers": 8, "resyncSeconds": 1000000}},
    }
    [deployment] = [o for o in chart.template(values) if o["kind"] == "Deployment"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    command, *flags = container["args"]
    environ = {e["name"]: e["value"] for e in container["env"]}
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser)
    read = settings.resolve(vars(parser.parse_args(flags)), environ=environ)
    assert command == "run"
    # `render` in the operator's container gets no flags, and must make the same manifests
    assert render_settings(settings.resolve({}, environ=environ)) == render_settings(read)
    assert read.namespace == "devices"
    assert read.agent_image == f"registry.example:5000/agent@sha256:{'a' * 64}"
    assert read.agent_image_pull_policy == "Always"
    assert read.agent_image_pull_secrets == ("one", "two")
    assert read.agent_service_account == "do-device-operator-agent"
    assert read.agent_selinux_type == "container_device_plugin_t"
    assert (read.log_level, read.log_format) == ("debug", "text")
    assert (read.workers, read.resync_seconds) == (8, 1000000.0)


def test_the_readme_lists_every_value_with_its_default(chart, defaults):
    rows = re.findall(r"^\| `([A-Za-z.]+)` \| (.+?) \|", (chart.path / "README.md").read_text(), re.MULTILINE)
    listed = dict(rows)
    assert len(listed) == len(rows)

    def check(node: Mapping[str, Any], path: str) -> None:
        for name, value in node.items():
            here = f"{path}.{name}" if path else name
            if isinstance(value, dict) and here not in listed:
                check(value, here)
            elif listed.get(here) == "see values.yaml":
                assert isinstance(value, dict | list), here
                assert len(json.dumps(value)) > 40, here
            else:
                assert listed.get(here) == f"`{json.dumps(value)}`", here
            seen.add(here)

    seen: set[str] = set()
    check(defaults, "")
    assert set(listed) <= seen


@pytest.mark.parametrize(
    ("strategy", "rendered"),
    [
        ({"type": "Recreate"}, {"type": "Recreate"}),
        ({"rollingUpdate": {"maxSurge": 0}}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
    ],
)  # fmt: skip
def test_a_strategy_is_one_that_the_api_server_takes(chart, strategy, rendered):
    objects = chart.template({"operator": {"strategy": strategy}})
    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    assert deployment["spec"]["strategy"] == rendered
