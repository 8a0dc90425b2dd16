"""Both CRDs on a real API server: what it accepts, what it refuses with which message, and what kubectl shows."""

import copy
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from bad_specs import API, CASES, Case, config, entry
from device_agent.contract.codec import encode
from device_agent.contract.status import NOTHING_SAID
from device_operator.render.manifests import render
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec import vain
from device_operator.spec.acceptance import AcceptedState, InForce
from device_operator.spec.parsing import parse_spec
from device_operator.spec.placement import assignment
from device_operator.spec.written import parse_written
from device_operator.status.observed import Observed
from device_operator.status.summary import compute
from full_spec import EVERYTHING
from kubeapi import CONFIGS, INVENTORIES, Kube, Object, RefusedError
from localcluster import Cluster, LocalClusterError, places
from unit.operator_core import build

pytestmark = pytest.mark.timeout(300)

CRDS = {
    crd["spec"]["names"]["kind"]: crd
    for path in sorted((places.CHECKOUT / "crds").glob("*.yaml"))
    if (crd := yaml.safe_load(path.read_text()))
}
EXAMPLES = [
    pytest.param(document, id=path.stem)
    for path in sorted((places.CHECKOUT / "examples").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document["kind"] == "DevicePluginConfig"
]


def create(kube: Kube, obj: Any, *, validation: str = "Strict") -> Object:
    """The object as it would be stored. kubectl asks for the validation Strict; the default of other clients is Warn."""
    path = {"DevicePluginConfig": CONFIGS, "NodeDeviceInventory": INVENTORIES}[obj["kind"]]
    return kube.create(f"{path}?dryRun=All&fieldValidation={validation}", obj)


def refusal(kube: Kube, obj: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        create(kube, obj)
    return str(refused.value)


@pytest.mark.parametrize("kind", CRDS)
def test_the_crds_are_established_without_a_complaint(api: Cluster, kind: str):
    live = json.loads(api.kubectl("get", "crd", CRDS[kind]["metadata"]["name"], "-o", "json"))
    conditions = {c["type"]: (c["status"], c.get("message")) for c in live["status"]["conditions"]}
    assert conditions["Established"][0] == "True"
    assert "NonStructuralSchema" not in conditions
    assert conditions["NamesAccepted"][0] == "True"


@pytest.mark.parametrize("document", EXAMPLES)
def test_examples_are_taken_and_served(kube: Kube, document: dict[str, Any]):
    parse_spec(create(kube, document))


def test_every_field_is_taken_and_kept(kube: Kube):
    stored = create(kube, config(EVERYTHING))
    assert stored["spec"] == EVERYTHING
    spec = parse_spec(stored)
    assert [pool.name for pool in spec.pools] == ["edge", "lab"]


def test_the_api_server_adds_no_defaults(kube: Kube):
    spec = {"resources": [entry()]}
    assert create(kube, config(spec))["spec"] == spec


@pytest.mark.parametrize("max_unavailable", [1, 25, "1%", "100%"])
def test_max_unavailable_is_a_number_or_a_percentage(kube: Kube, max_unavailable: object):
    spec = {"resources": [entry()], "updateStrategy": {"maxUnavailable": max_unavailable}}
    assert parse_spec(create(kube, config(spec))).max_unavailable == max_unavailable


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_wrong_specs_are_refused_with_advice(kube: Kube, case: Case):
    if case.by == API:
        text = refusal(kube, case.object)
        assert case.message in text
        assert_render_names(text, case.object)
    else:
        assert case.message in _told_by_the_operator(create(kube, case.object))


def assert_render_names(refused: str, obj: Any) -> None:
    """`render` refuses the object too, with a text about each place that the API server names."""
    with pytest.raises(InvalidSpecError) as told:
        parse_written(obj)
    ours = [problem.partition(": ")[0] for problem in told.value.problems]
    named = re.findall(r"(?:^|[ \[\"])((?:spec|metadata)(?:[.\[][\w.\[\]-]+)?)[\":]", refused)
    assert named or "<nil>: " in refused, refused  # of a rule for the whole object it names no place
    for theirs in named:
        assert any(a.startswith(b) for our in ours for a, b in ((our, theirs), (theirs, our))), (ours, refused)


def broken(schema: dict[str, Any], value: Any, path: str) -> list[tuple[str, Any]]:
    """(path, value) for each bound of a schema that `value` could break: the value just beyond it."""
    found: list[tuple[str, Any]] = []
    kind = schema.get("type")
    if kind == "string" and "maxLength" in schema:
        found.append((path, "a" * (schema["maxLength"] + 1)))
    if kind == "string" and schema.get("minLength"):
        found.append((path, ""))
    if kind == "string" and "enum" in schema:
        found.append((path, "Nonesuch"))
    if kind == "integer":
        found += [(path, schema[key] + step) for key, step in (("minimum", -1), ("maximum", 1)) if key in schema]
    if kind == "array" and isinstance(value, list) and value:
        found.append((path, [value[0]] * (schema["maxItems"] + 1)))
        if schema.get("minItems"):
            found.append((path, []))
        found += broken(schema["items"], value[0], f"{path}[0]")
    if kind == "object" and isinstance(value, dict):
        found += [
            item
            for k, v in value.items()
            if k in schema.get("properties", {})
            for item in broken(schema["properties"][k], v, f"{path}.{k}")
        ]
        found += [(f"{path}.{k}", None) for k in schema.get("required", ()) if k in value]
    return found


def with_value(obj: Any, path: str, value: Any) -> Any:
    """A copy of the object with this value at the path."""
    whole = inner = copy.deepcopy(obj)
    steps: list[Any] = [int(n) if n else name for name, n in re.findall(r"([A-Za-z]\w*)|\[(\d+)\]", path)]
    for step in steps[:-1]:
        inner = inner[step]
    inner[steps[-1]] = value
    return whole


def test_beyond_each_bound_render_refuses_what_the_api_server_refuses(kube: Kube):
    schema = CRDS["DevicePluginConfig"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    tried = broken(schema, EVERYTHING, "spec")
    assert len(tried) > 100
    for path, value in tried:
        obj = with_value(config(EVERYTHING), path, value)
        try:
            create(kube, obj)
        except RefusedError as refused:
            assert_render_names(str(refused), obj)
        else:  # also a value that the schema takes must not be refused by `render` alone, unless the operator does
            operator, ours = _told_by_the_operator(obj), ""
            try:
                parse_written(obj)
            except InvalidSpecError as error:
                ours = str(error)
            assert bool(operator) == bool(ours), (path, ours)


def _told_by_the_operator(stored: dict[str, Any]) -> str:
    try:
        return "; ".join(vain.problems(parse_spec(stored)))
    except InvalidSpecError as refused:
        return str(refused)


def test_unknown_fields_are_dropped_for_clients_that_do_not_validate_strictly(kube: Kube):
    misspelt = config({"resources": [entry(sharin={"replicas": 2})]})
    assert "unknown field" in refusal(kube, misspelt)
    assert create(kube, misspelt, validation="Warn")["spec"] == {"resources": [entry()]}


def inventory(name: str = "lab.node-1") -> dict[str, Any]:
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "NodeDeviceInventory",
        "metadata": {"name": name},
        "spec": {"configName": "lab", "nodeName": "node-1"},
    }


def test_an_inventory_has_the_name_of_its_config_and_node(kube: Kube):
    create(kube, inventory())
    assert "metadata.name must be <spec.configName>.<spec.nodeName>" in refusal(kube, inventory("other"))


def test_an_inventory_stays_that_of_its_node(api: Cluster):
    api.kubectl("create", "-f", "-", input=json.dumps(inventory()))
    try:
        with pytest.raises(LocalClusterError, match=r"nodeName is immutable: only spec\.cordoned may change"):
            api.kubectl("patch", "ndi", "lab.node-1", "--type=merge", "-p", '{"spec": {"nodeName": "node-2"}}')
        status = {
            "poolName": "edge",
            "lastHeartbeatTime": (datetime.now(UTC) - timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "summary": {"devices": 2, "healthy": 1, "withheld": 1, "capacity": 2, "allocated": 1},
            "devices": [
                {
                    "id": "a",
                    "resource": "example.com/nic",
                    "health": "Healthy",
                    "offered": False,
                    "withheld": "Cordoned",
                },
                {"id": "b", "resource": "example.com/nic", "health": "Healthy", "attributes": {"name": "a"}},
            ],
        }
        patch = json.dumps({"status": status})
        api.kubectl("patch", "ndi", "lab.node-1", "--subresource=status", "--type=merge", "-p", patch)
        assert json.loads(api.kubectl("get", "ndi", "lab.node-1", "-o", "json"))["status"] == status
        head, row = (line.split() for line in api.kubectl("get", "ndi").splitlines())
        assert head == ["NAME", "NODE", "CONFIG", "POOL", "DEVICES", "HEALTHY", "WITHHELD", "ALLOCATED", "AGE"]
        assert row[:8] == ["lab.node-1", "node-1", "lab", "edge", "2", "1", "1", "1"]
        head, row = (line.split() for line in api.kubectl("get", "ndi", "-o", "wide").splitlines())
        assert (head[8:], row[9]) == (["AGE", "HEARTBEAT"], "3h")
        for selector, found in (("spec.nodeName=node-1", 1), ("spec.nodeName=node-2", 0), ("spec.configName=lab", 1)):
            items = json.loads(api.kubectl("get", "ndi", "--field-selector", selector, "-o", "json"))["items"]
            assert len(items) == found, selector
    finally:
        api.kubectl("delete", "ndi", "lab.node-1")


def cordoned(kube: Kube, *items: dict[str, Any]) -> list[dict[str, Any]]:
    """The cordons after a merge patch of the spec."""
    return kube.patch(f"{INVENTORIES}/lab.node-1", {"spec": {"cordoned": list(items)}})["spec"].get("cordoned", [])


def test_of_an_inventorys_spec_the_cordons_alone_may_change(kube: Kube):
    kube.create(INVENTORIES, {**inventory(), "spec": {**inventory()["spec"], "cordoned": [{"id": "a"}]}})
    try:
        first, second = {"id": "a", "reason": "recall"}, {"id": "*", "reason": "maintenance"}
        assert cordoned(kube, first, second) == [first, second]
        assert cordoned(kube) == []
        for spec, refused in (
            ({"cordoned": [{"id": "a"}, {"id": "a"}]}, 'Duplicate value: {"id":"a"}'),
            ({"cordoned": [{"reason": "no id"}]}, "spec.cordoned[0].id"),
            ({"cordoned": [{"id": ""}]}, "spec.cordoned[0].id"),
            ({"cordoned": [{"id": "a", "reason": "x" * 257}]}, "spec.cordoned[0].reason"),
            ({"cordoned": [{"id": f"d{n}"} for n in range(257)]}, "spec.cordoned"),
            ({"configName": "other", "cordoned": [{"id": "a"}]}, "configName is immutable: only spec.cordoned"),
            ({"nodeName": None}, "spec.nodeName"),
        ):
            with pytest.raises(RefusedError) as error:
                kube.patch(f"{INVENTORIES}/lab.node-1", {"spec": spec})
            assert refused in str(error.value), spec
    finally:
        kube.delete(f"{INVENTORIES}/lab.node-1")


def test_kubectl_shows_the_summary_and_more_with_wide(api: Cluster):
    api.kubectl("create", "-f", "-", input=json.dumps(config({"resources": [entry()]}, name="columns")))
    try:
        status = {
            "lastUpdateTime": "2026-01-01T00:00:00Z",
            "summary": {
                "status": "ImagePullFailed",
                "message": "no such image",
                "nodes": "2/3",
                "devices": "23/24",
                "capacity": 48,
                "allocated": 10,
                "unhealthy": 1,
                "withheld": 2,
            },
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "ImagePullFailed",
                    "message": "m",
                    "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        }
        patch = json.dumps({"status": status})
        api.kubectl("patch", "dpc", "columns", "--subresource=status", "--type=merge", "-p", patch)
        narrow = [line.split() for line in api.kubectl("get", "devices").splitlines() if line]
        assert narrow[0] == ["NAME", "READY", "STATUS", "NODES", "DEVICES", "ALLOCATED", "UPDATED", "AGE"]
        name = "devicepluginconfig.device-operator.io/columns"
        assert narrow[1][:6] == [name, "False", "ImagePullFailed", "2/3", "23/24", "10"]
        wide = [line.split() for line in api.kubectl("get", "dpc", "-o", "wide").splitlines()]
        assert wide[0] == [*narrow[0], "WITHHELD", "MESSAGE"]
        assert wide[1][8:] == ["2", "no", "such", "image"]
    finally:
        api.kubectl("delete", "dpc", "columns")


def test_the_status_of_a_big_fleet_is_stored_whole(kube: Kube):
    names = [f"node-{i:05}" for i in range(5000)]
    devices = [build.device(f"d{i}", health="Unhealthy", reason="Missing", message="<&>") for i in range(8)]
    holders = [{"namespace": "default", "pod": "p", "container": "c"}]
    devices.append(build.device("held", allocatedTo=holders))
    spec = build.spec()
    nodes = tuple(build.node(name) for name in names)
    computed = compute(
        AcceptedState(ref=build.LAB, generation=1, in_force=InForce(1, spec)),
        observed=Observed(
            now=build.NOW,
            nodes=nodes,
            pods=tuple(build.pod(name) for name in names),
            inventories=tuple(
                build.inventory(
                    n, resources=[build.counts(devices=9, healthy=1)], devices=devices if i % 9 == 0 else []
                )
                for i, n in enumerate(names)
            ),
        ),
        previous=NOTHING_SAID,
        assigned=assignment(spec, nodes=nodes, others=[]),
        manifests=render(build.LAB, spec, build.SETTINGS),
    )
    status = encode(computed.status)
    assert len(json.dumps(status)) > 250 * 1024
    kube.create(CONFIGS, config({"resources": [entry()]}, name="fleet"))
    try:
        kube.patch(f"{CONFIGS}/fleet/status?fieldValidation=Strict", {"status": status})
        assert kube.get(f"{CONFIGS}/fleet")["status"] == status
        assert status["summary"]["devices"] == "5000/45000"
    finally:
        kube.delete(f"{CONFIGS}/fleet")


def fields(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every schema of a CRD with its path; `[]` for the items of a list, `{}` for the values of a map."""
    found = [(path, schema)]
    for name, inner in schema.get("properties", {}).items():
        found += fields(inner, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        found += fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        found += fields(schema["additionalProperties"], f"{path}{{}}")
    return found


SCHEMAS = [
    pytest.param(path, schema, id=f"{kind}{path}")
    for kind, crd in CRDS.items()
    for path, schema in fields(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    if path not in (".metadata", ".apiVersion", ".kind")
]


def test_every_field_is_described_and_bounded():
    for parameter in SCHEMAS:
        _path, schema = parameter.values
        where = parameter.id
        assert len(schema.get("description", "")) > 5, where
        assert schema["description"].endswith((".", ")", "]")), where
        kind = schema.get("type")
        if kind == "array":
            assert "maxItems" in schema, where
            assert "x-kubernetes-list-type" in schema, where
        elif kind == "string":
            assert {"maxLength", "enum", "format"} & schema.keys(), where
        elif kind == "object" and "additionalProperties" in schema:
            assert "maxProperties" in schema, where
        assert "x-kubernetes-preserve-unknown-fields" not in schema, where
        assert "default" not in schema, where


def test_every_rule_has_advice():
    rules = [(p.id, rule) for p in SCHEMAS for rule in p.values[1].get("x-kubernetes-validations", ())]
    assert len(rules) > 30
    for where, rule in rules:
        assert len(rule["message"]) > 15, where


def test_kubectl_explains_fields(api: Cluster):
    text = api.kubectl("explain", "dpc.spec.resources.sharing.replicas")
    assert "How many ids the kubelet sees for each device" in re.sub(r"\s+", " ", text)
