"""The alerts of the chart: each fires for its cause and is silent for what is planned, as promtool evaluates it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from device_agent.contract.config_reasons import ConditionReason
from device_agent.contract.node_reasons import NodeReason
from localcluster import places
from unit.chart.alert_cases import CAUSES, PLANNED, Make
from unit.chart.scrapes import Fleet, hour, promtool

ON = {"metrics": {"prometheusRule": {"enabled": True}}}
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
UNSAID = {
    # no fault
    *(NodeReason.SERVING, NodeReason.NO_DEVICES, NodeReason.PAUSED),
    # the node is the cause: alerts about nodes say it
    NodeReason.NODE_NOT_READY,
    # other series have them, once for the object or for each device
    *(NodeReason.NOT_OWNED, NodeReason.APPLY_FAILED, NodeReason.RESOURCE_CONFLICT, NodeReason.DEVICE_CONFLICT),
    *(NodeReason.DEVICES_UNHEALTHY, NodeReason.DEVICES_UNKNOWN, NodeReason.STALE_GRANT),
}
"""Reasons of nodes that no alert reads from device_operator_node_failed."""


@pytest.fixture(scope="module")
def rule(chart) -> dict[str, Any]:
    [found] = [o for o in chart.template(ON) if o["kind"] == "PrometheusRule"]
    return found


@pytest.fixture(scope="module")
def alerts(rule) -> dict[str, dict[str, Any]]:
    return {r["alert"]: r for group in rule["spec"]["groups"] for r in group["rules"]}


@pytest.fixture(scope="module")
def folder(rule, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("rules")
    (made / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    return made


def scene(name: str, make: Make, expected: Mapping[str, int]) -> dict[str, Any]:
    before, after = Fleet(), Fleet()
    make(before, 0)
    make(after, 1)
    found = [
        {"labels": json.dumps({"alertname": n}).replace('": ', "=").replace('{"', "{"), "value": v}
        for n, v in expected.items()
    ]
    test = {"expr": FIRING, "eval_time": "1h", "exp_samples": found}
    return {"name": name, "interval": "1m", "input_series": hour(before, after), "promql_expr_test": [test]}


def verdict(folder: Path, *scenes: dict[str, Any]) -> str:
    """What promtool says; '' if all is as expected."""
    asked = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": scenes}
    (folder / "tests.yaml").write_text(json.dumps(asked))
    done = promtool("test", "rules", "tests.yaml", at=folder)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_rules_are_valid(folder):
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", at=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_for_its_cause(folder, alerts):
    assert {name for _, expected in CAUSES.values() for name in expected} == set(alerts)
    assert verdict(folder, *(scene(name, make, expected) for name, (make, expected) in CAUSES.items())) == ""


def test_what_is_planned_fires_no_alert(folder):
    assert verdict(folder, *(scene(name, make, {}) for name, make in PLANNED.items())) == ""


def test_a_wrong_expectation_is_found(folder):
    assert "DevicesUnhealthy" in verdict(folder, scene("x", CAUSES["an unhealthy device"][0], {}))
    assert "DevicesUnhealthy" in verdict(folder, scene("x", PLANNED["cordoned"], {"DevicesUnhealthy": 1}))


def test_an_alert_names_what_is_broken_and_a_command(folder, alerts):
    about = alerts["DevicesUnhealthy"]["annotations"]
    values = {"$labels.node": "node-1", "$labels.resource": "example.com/kvm", "$labels.reason": "Xid79"}
    for field, value in {**values, 'printf "%.0f" $value': "1"}.items():
        about = {k: text.replace("{{ " + field + " }}", value) for k, text in about.items()}
    labels = {"config": "lab", "pool": "default", "node": "node-1", "resource": "example.com/kvm", "reason": "Xid79"}
    one = scene("x", CAUSES["an unhealthy device"][0], {"DevicesUnhealthy": 1})
    expected = [{"exp_labels": {**labels, "severity": "warning"}, "exp_annotations": about}]
    one["alert_rule_test"] = [{"alertname": "DevicesUnhealthy", "eval_time": "1h", "exp_alerts": expected}]
    assert verdict(folder, one) == ""
    assert "kubectl devices list node-1" in about["description"]


def test_a_text_uses_only_labels_that_its_alert_has(alerts):
    for name, alert in alerts.items():
        grouped = re.findall(r"by \(([^)]*)\)", alert["expr"])
        has = set.intersection(*({label.strip() for label in one.split(",")} for one in grouped)) if grouped else set()
        text = alert["annotations"]["summary"] + alert["annotations"]["description"]
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= has, name
        assert "un: kubectl" in text or "by: kubectl" in text, name
        assert "<" not in text, name


def test_every_reason_is_in_one_alert_or_left_out_on_purpose(alerts):
    said: list[str] = []
    faults: set[str] = set()
    for alert in alerts.values():
        for metric, words in re.findall(r'device_operator_(\w+)\{\s*reason=~?"([^"]+)"', alert["expr"]):
            if metric == "node_failed":
                said += words.split("|")
            elif metric == "config_fault":
                faults |= set(words.split("|"))
    assert sorted(said) == sorted({*NodeReason, "Other"} - UNSAID)
    # a fault of an object: of its nodes and devices (above), or told by the condition Accepted or Ready
    assert faults == {
        *(ConditionReason.ACCEPTED_SPEC_LOST, ConditionReason.HALTED, ConditionReason.NOT_OWNED),
        *(ConditionReason.APPLY_FAILED, ConditionReason.POOL_OVERLAP, ConditionReason.NO_NODES),
        *(ConditionReason.NOTHING_FOUND, ConditionReason.NODES_LOST, ConditionReason.DEVICE_CONFLICT),
        ConditionReason.RESOURCE_CONFLICT,
    }


def test_the_values_change_single_alerts(chart, alerts):
    changed = {"DeviceGpuHot": {"enabled": False}, "DevicesUnhealthy": {"for": "1h", "severity": "info"}}
    values = {
        "enabled": True,
        "labels": {"release": "p"},
        "runbookUrl": "https://docs.example.com/m",
        "alerts": changed,
    }
    [rule] = [o for o in chart.template({"metrics": {"prometheusRule": values}}) if o["kind"] == "PrometheusRule"]
    found = {r["alert"]: r for group in rule["spec"]["groups"] for r in group["rules"]}
    assert set(found) == set(alerts) - {"DeviceGpuHot"}
    assert (found["DevicesUnhealthy"]["for"], found["DevicesUnhealthy"]["labels"]) == ("1h", {"severity": "info"})
    assert found["DeviceConflict"] | {"annotations": {}} == alerts["DeviceConflict"] | {"annotations": {}}
    assert found["DeviceConflict"]["annotations"]["runbook_url"] == "https://docs.example.com/m#deviceconflict"
    assert rule["metadata"]["labels"]["release"] == "p"


def test_schema_and_docs_have_every_alert(chart, alerts):
    schema = json.loads((chart.path / "values.schema.json").read_text())
    known = schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]["alerts"]["properties"]
    assert set(known) == set(alerts)
    page = (places.CHECKOUT / "docs" / "monitoring.md").read_text()
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(alerts)
    [example] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    [rule] = [o for o in chart.template(yaml.safe_load(example)) if o["kind"] == "PrometheusRule"]
    assert "DeviceGpuHot" not in str(rule)
