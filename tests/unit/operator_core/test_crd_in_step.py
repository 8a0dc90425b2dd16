"""The CRD's fields and the dataclasses that read them: a field of the one alone would be dropped or refused."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml
from device_agent.contract import check, names
from device_agent.contract.codec import camel
from device_agent.contract.document import Resource
from device_operator.spec import wording
from device_operator.spec.agent_settings import RESERVED_ENV, AgentSettings
from device_operator.spec.model import Pool
from device_operator.spec.parsing import _SPEC_FIELDS as SPEC_FIELDS
from device_operator.spec.parsing import MAX_CONFIG_NAME, MAX_POOL_NAME, MAX_POOLS, MAX_RESOURCES
from device_operator.spec.scheduling import TolerationOperator
from device_operator.status import serving
from device_operator.status import summary as status

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "devicepluginconfigs.yaml").read_text())
ROOT = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = ROOT["properties"]["spec"]["properties"]
POOL = SPEC["nodePools"]["items"]["properties"]


def differences(cls: Any, schema: dict[str, Any], path: str) -> list[str]:
    """Where type and schema say different things; the names are the JSON's."""
    if dataclasses.is_dataclass(cls):
        if schema.get("type") != "object":
            return [f"{path}: is no object in the CRD"]
        hints = typing.get_type_hints(cls)
        fields = {camel(f.name): f for f in dataclasses.fields(cls)}
        found = [f"{path}.{n}: one side only" for n in fields.keys() ^ schema["properties"].keys()]
        required = {n for n, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
        if required != set(schema.get("required", ())):
            found.append(f"{path}: required {sorted(required)}, in the CRD {schema.get('required')}")
        for name in fields.keys() & schema["properties"].keys():
            found += differences(hints[fields[name].name], schema["properties"][name], f"{path}.{name}")
        return found
    origin, arguments = typing.get_origin(cls), typing.get_args(cls)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (a for a in arguments if a is not type(None))
        return differences(inner, schema, path)
    if origin is tuple:
        if schema.get("type") != "array":
            return [f"{path}: is no list in the CRD"]
        return differences(arguments[0], schema["items"], f"{path}[]")
    if origin is Mapping:
        return [] if "additionalProperties" in schema else [f"{path}: is no map in the CRD"]
    if issubclass(cls, StrEnum):
        # matchFields know two of the operators
        same = set(schema.get("enum", ())) == set(cls) or (".matchFields" in path and set(schema["enum"]) <= set(cls))
        return [] if same else [f"{path}: {sorted(cls)}, in the CRD {schema.get('enum')}"]
    kind = {str: "string", int: "integer", bool: "boolean"}[cls]
    return [] if schema.get("type") == kind else [f"{path}: {kind}, in the CRD {schema.get('type')}"]


@pytest.mark.parametrize(
    ("cls", "schema"),
    [
        (Resource, SPEC["resources"]["items"]),
        (Pool, SPEC["nodePools"]["items"]),
        (AgentSettings, SPEC["agent"]),
        (AgentSettings, POOL["agent"]),
    ],
    ids=["resources", "nodePools", "agent", "agent of a pool"],
)
def test_the_crd_and_the_dataclasses_have_the_same_fields(cls: type, schema: dict[str, Any]):
    found = differences(cls, schema, "")
    assert [f for f in found if f not in ON_PURPOSE] == []


ON_PURPOSE = {
    # a preset is expanded before the entry is parsed, and may bring the devices
    ".preset: one side only",
    ": required ['devices', 'name'], in the CRD ['name']",
    # matchFields need values, matchExpressions may go without
    ".nodeSelectorTerms[].matchFields[]: required ['key', 'operator'], in the CRD ['key', 'operator', 'values']",
}


def test_the_comparison_sees_a_difference():
    schema = {**SPEC["agent"], "properties": {k: v for k, v in SPEC["agent"]["properties"].items() if k != "image"}}
    assert differences(AgentSettings, schema, "agent") == ["agent.image: one side only"]


def test_the_spec_has_the_fields_that_are_parsed():
    assert SPEC.keys() == SPEC_FIELDS


def test_bounds_are_those_of_the_code():
    resource = SPEC["resources"]["items"]["properties"]
    assert resource["sharing"]["properties"]["replicas"]["maximum"] == check.MAX_REPLICAS
    simulated = resource["devices"]["items"]["properties"]["simulated"]["properties"]
    assert simulated["count"]["maximum"] == names.MAX_IDS
    assert POOL["name"]["maxLength"] == MAX_POOL_NAME
    assert f"size() <= {MAX_CONFIG_NAME} " in ROOT["x-kubernetes-validations"][0]["rule"]
    (_, rule) = SPEC["agent"]["properties"]["env"]["items"]["properties"]["name"]["x-kubernetes-validations"]
    assert all(f"'{name}'" in rule["rule"] for name in RESERVED_ENV)
    assert rule["rule"].count("'") == 2 * len(RESERVED_ENV)
    health = resource["health"]["properties"]
    assert {name: health[name]["maximum"] for name in health if "maximum" in health[name]} == {
        "intervalSeconds": check.MAX_INTERVAL_SECONDS,
        "failureThreshold": check.MAX_FAILURES,
        "recoveryThreshold": check.MAX_RECOVERIES,
        "removalGraceSeconds": check.MAX_GRACE_SECONDS,
    }
    assert health["ignoreXids"]["items"]["maximum"] == check.MAX_XID
    assert health["xids"]["items"]["properties"]["xid"]["maximum"] == check.MAX_XID
    assert set(TolerationOperator) == set(POOL["tolerations"]["items"]["properties"]["operator"]["enum"])


def test_the_status_is_cut_where_the_crd_ends():
    fields = ROOT["properties"]["status"]["properties"]
    node = fields["nodes"]["items"]["properties"]
    assert fields["resources"]["maxItems"] == status.MAX_RESOURCES
    assert fields["unhealthyDevices"]["maxItems"] == status.MAX_UNHEALTHY
    assert fields["nodes"]["maxItems"] == status.MAX_NODES
    assert node["devices"]["maxItems"] == status.MAX_DEVICES
    assert node["devices"]["items"]["properties"]["allocatedTo"]["maxItems"] == status.MAX_HOLDERS
    assert node["message"]["maxLength"] >= wording.MAX_MESSAGE
    assert node["state"]["enum"] == list(serving.State)


def test_render_counts_resources_and_pools_as_the_api_server_does():
    assert (SPEC["resources"]["maxItems"], SPEC["nodePools"]["maxItems"]) == (MAX_RESOURCES, MAX_POOLS)
