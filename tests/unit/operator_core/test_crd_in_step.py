"""The CRD's fields and the dataclasses that read them: a field that only one of them has would be dropped or refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from device_agent.contract import check, names
from device_agent.contract.document import Resource
from device_agent.contract.status import ConfigStatus
from device_operator.spec import wording
from device_operator.spec.agent_settings import RESERVED_ENV, AgentSettings
from device_operator.spec.model import Pool
from device_operator.spec.parsing import _SPEC_FIELDS as SPEC_FIELDS
from device_operator.spec.parsing import MAX_CONFIG_NAME, MAX_POOL_NAME, MAX_POOLS, MAX_RESOURCES
from device_operator.spec.scheduling import TolerationOperator
from device_operator.status import summary as status
from unit.contract.schemas import differences

CRD = yaml.safe_load((Path(__file__).parents[3] / "crds" / "devicepluginconfigs.yaml").read_text())
ROOT = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = ROOT["properties"]["spec"]["properties"]
POOL = SPEC["nodePools"]["items"]["properties"]


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
    # matchFields need values, matchExpressions do not
    ".nodeSelectorTerms[].matchFields[]: required ['key', 'operator'], in the CRD ['key', 'operator', 'values']",
}


def test_the_comparison_sees_a_difference():
    schema = {**SPEC["agent"], "properties": {k: v for k, v in SPEC["agent"]["properties"].items() if k != "image"}}
    assert differences(AgentSettings, schema, "agent") == ["agent.image: one side only"]


def test_the_spec_has_the_fields_that_are_parsed():
    assert SPEC.keys() == SPEC_FIELDS


def test_the_crd_has_the_bounds_of_the_code():
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


def test_the_status_is_cut_at_the_bounds_of_the_crd():
    fields = ROOT["properties"]["status"]["properties"]
    node = fields["nodes"]["items"]["properties"]
    assert fields["resources"]["maxItems"] == status.MAX_RESOURCES
    assert fields["unhealthyDevices"]["maxItems"] == status.MAX_UNHEALTHY
    assert fields["nodes"]["maxItems"] == status.MAX_NODES
    assert node["devices"]["maxItems"] == status.MAX_DEVICES
    assert node["devices"]["items"]["properties"]["allocatedTo"]["maxItems"] == status.MAX_HOLDERS
    assert node["message"]["maxLength"] >= wording.MAX_MESSAGE


def test_the_status_has_the_fields_that_are_written():
    assert differences(ConfigStatus, ROOT["properties"]["status"], "status") == []


def test_render_counts_resources_and_pools_as_the_api_server_does():
    assert (SPEC["resources"]["maxItems"], SPEC["nodePools"]["maxItems"]) == (MAX_RESOURCES, MAX_POOLS)
