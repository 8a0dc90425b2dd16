"""What leaves the cluster in a support archive has no secrets, and still its facts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubectl_devices.model import redaction, support

SECRET = "s3cr3t-Zk9"
TOKEN = "eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJlcm5l.c2lnbmF0dXJlLWhlcmU"


@pytest.mark.parametrize(
    "text",
    [
        f"pulling https://user:{SECRET}@registry.example.com/agent",
        f"Authorization: Bearer {TOKEN}",
        f"a token {TOKEN} in the middle",
        f"password={SECRET}, next=1",
        f'{{"apiKey": "{SECRET}"}}',
        f"DB_PASSWORD: {SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secrets_in_logs_are_removed(text: str):
    clean = redaction.text(text)
    assert SECRET not in clean
    assert TOKEN not in clean
    assert redaction.REMOVED in clean


@pytest.mark.parametrize(
    "text",
    ["registered resource=example.com/kvm ids=10", "GPU-5f1c=2026-03-01T10:15:00Z: taken", "https://host:6443/api"],
)
def test_a_log_without_secrets_stays_as_it_is(text: str):
    assert redaction.text(text) == text


def test_secrets_in_objects_are_removed_and_the_rest_stays():
    pod: dict[str, Any] = {
        "metadata": {
            "name": "agent",
            "managedFields": [{"manager": "x"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "note": "kept"},
        },
        "spec": {
            "automountServiceAccountToken": True,
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [{"env": [{"name": "API_TOKEN", "value": SECRET}, {"name": "NODE_NAME", "value": "n1"}]}],
            "password": SECRET,
        },
    }
    clean = redaction.value(pod)
    assert SECRET not in json.dumps(clean)
    assert clean["metadata"] == {"name": "agent", "annotations": {"note": "kept"}}
    assert clean["spec"]["automountServiceAccountToken"] is True
    assert clean["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert [e["value"] for e in clean["spec"]["containers"][0]["env"]] == [redaction.REMOVED, "n1"]


@given(st.recursive(st.text() | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_any_json_can_be_redacted_twice_with_one_result(value: Any):
    once = redaction.value(value)
    assert redaction.value(once) == once


def test_of_a_node_only_labels_taints_and_state_are_kept():
    node = {
        "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"x": SECRET}},
        "spec": {"taints": [], "providerID": SECRET},
        "status": {"capacity": {"cpu": "2"}, "addresses": [{"address": "10.0.0.1"}], "images": [{}]},
    }
    path, content = support.objects("nodes", [node])
    assert path == "objects/nodes.json"
    assert json.loads(content) == [
        {"metadata": {"name": "n1", "labels": {"a": "b"}}, "spec": {"taints": []}, "status": {"capacity": {"cpu": "2"}}}
    ]
