"""What a DevicePluginConfig means once parsed, and what only the operator can refuse."""

import dataclasses

import pytest
from device_agent.contract import names
from device_agent.contract.document import Policy, parse
from device_agent.contract.document import dump as dump_document
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec.agent_settings import AgentSettings, LogLevel, PullSecret, merged
from device_operator.spec.parsing import parse_spec
from unit.operator_core.build import KVM, entry, obj, pools, spec


def problems(given: object) -> str:
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(given)  # type: ignore[arg-type]
    return "\n".join(refused.value.problems)


def test_an_object_without_pools_has_one_on_every_node_that_serves_everything():
    (pool,) = spec(resources=[entry("example.com/a"), entry("example.com/b")]).pools
    assert pool.name == "default"
    assert pool.serves == ("example.com/a", "example.com/b")
    assert pool.node_selector == {}
    assert pool.tolerations is None


def test_a_pool_without_serves_serves_everything_in_the_order_of_the_entries():
    found = pools(
        {"name": "all"},
        {"name": "some", "serves": ["example.com/b", "example.com/a"]},
        resources=[entry("example.com/a"), entry("example.com/b"), entry("example.com/c")],
    )
    served = [[r.name for r in found.document(pool).resources] for pool in found.pools]
    assert served == [["example.com/a", "example.com/b", "example.com/c"], ["example.com/a", "example.com/b"]]


def test_omitted_fields_of_a_resource_get_the_contracts_defaults():
    (shared, exclusive) = spec(
        resources=[entry("example.com/a", sharing={"replicas": 2}), entry("example.com/b")]
    ).resources
    assert shared.allocation.policy is Policy.SPREAD
    assert exclusive.allocation.policy is Policy.TOPOLOGY
    assert exclusive.sharing.replicas == 1


def test_the_document_of_a_pool_is_what_its_agents_read():
    found = spec()
    document = found.document(found.pools[0])
    assert parse(dump_document(document)) == document


def test_omitted_tolerations_differ_from_an_empty_list():
    omitted, empty = pools({"name": "a"}, {"name": "b", "tolerations": []}).pools
    assert [t.operator for t in omitted.effective_tolerations] == ["Exists"]
    assert empty.effective_tolerations == ()


def test_a_pools_agent_replaces_fields_of_the_specs_and_merges_no_lists():
    found = spec(
        agent={"image": "a:1", "logLevel": "Debug", "env": [{"name": "A", "value": "1"}]},
        nodePools=[{"name": "edge", "agent": {"image": "b:1", "env": [{"name": "B"}]}}],
    )
    agent = found.pools[0].agent
    assert (agent.image, agent.log_level) == ("b:1", LogLevel.DEBUG)
    assert agent.env is not None
    assert [(e.name, e.value) for e in agent.env] == [("B", "")]


def test_an_empty_list_of_a_pools_agent_is_set():
    base = AgentSettings(image_pull_secrets=(PullSecret("a"),))
    assert merged(base, AgentSettings(image_pull_secrets=())).image_pull_secrets == ()
    assert merged(base, AgentSettings()).image_pull_secrets == (PullSecret("a"),)


def test_quantities_may_be_numbers():
    agent = spec(agent={"resources": {"requests": {"cpu": 0.5}, "limits": {"cpu": 1, "memory": "1Gi"}}}).pools[0].agent
    assert agent.resources is not None
    assert agent.resources.requests == {"cpu": "0.5"}
    assert agent.resources.limits == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("given", "nodes", "allowed"),
    [(None, 25, 2), (None, 9, 0), (3, 25, 3), ("50%", 3, 1), ("100%", 7, 7)],
)
def test_max_unavailable_is_rounded_down_for_ready(given: object, nodes: int, allowed: int):
    fields = {} if given is None else {"updateStrategy": {"maxUnavailable": given}}
    assert spec(**fields).allowed_unavailable(nodes) == allowed


BAD_POOL = [
    ({"serves": ["example.com/kmv"]}, "spec.nodePools[0].serves[0]: 'example.com/kmv' is no entry of spec.resources: did you mean example.com/kvm?"),
    ({"nodeSelector": {"kubernetes.io/os": "windows"}}, "spec.nodePools[0].nodeSelector: kubernetes.io/os is 'windows'"),
    ({"nodeSelector": {"a b": "c"}}, "'a b' is no label key"),
    ({"nodeSelectorTerms": [{}]}, "spec.nodePools[0].nodeSelectorTerms[0]: is empty"),
    ({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}, "needs at least one value"),
    ({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}]}, "takes no values"),
    ({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Lt", "values": ["1", "2"]}]}]}, "exactly one whole number"),
    ({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]}, "exactly one value"),
    ({"tolerations": [{"value": "b"}]}, "spec.nodePools[0].tolerations[0]: without key it needs operator Exists"),
    ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "takes no value"),
    ({"tolerations": [{"key": "a", "tolerationSeconds": 1}]}, "needs effect NoExecute"),
    ({"tolerations": [{"key": "a", "effect": "Never"}]}, "must be one of NoSchedule, PreferNoSchedule, NoExecute"),
    ({"agent": {"logLevel": "debug"}}, "spec.nodePools[0].agent.logLevel: must be one of Debug, Info"),
    ({"colour": "blue"}, "spec.nodePools[0].colour: unknown field"),
    ({"agent": {"imge": "a"}}, "spec.nodePools[0].agent.imge: unknown field: did you mean image?"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), BAD_POOL)
def test_an_invalid_pool_is_refused(fields: dict[str, object], message: str):
    assert message in problems(obj(nodePools=[{"name": "edge", **fields}]))


def _access(**fields: object) -> dict[str, object]:
    return {"driverAccess": fields}


BAD_AGENT = [
    (_access(), "spec.agent.driverAccess: needs either runtimeClass or cdiDevice"),
    (_access(runtimeClass="nvidia", driverRoot="/"), "or driverRoot alone"),
    (_access(runtimeClass="n" * 254), "is no name of a RuntimeClass"),
    (_access(runtimeClass="NVIDIA"), "spec.agent.driverAccess.runtimeClass: 'NVIDIA' is no name of a RuntimeClass"),
    (_access(driverRoot="//"), "spec.agent.driverAccess.driverRoot: '//' must be / or an absolute path"),
    (_access(driverRoot="//run/nvidia/driver"), "must be / or an absolute path"),
    (_access(driverRoot="/run/../etc"), "must be / or an absolute path"),
    (_access(driverRoot="/run/nvidia/driver/"), "must be / or an absolute path"),
    (_access(driverRoot="/run\0"), "must be / or an absolute path"),
    (_access(cdiDevice="management.nvidia.com/gpu"), "spec.agent.driverAccess.cdiDevice: 'management.nvidia.com/gpu' must read"),
    (_access(cdiDevice="nvidia.com/gpu=all-"), "must read vendor.com/class=name"),
    (_access(cdiDevice="nvidia.com-/gpu=all"), "must read vendor.com/class=name"),
    (_access(cdiDevice="1nvidia.com/gpu=all"), "must read vendor.com/class=name"),
    (_access(cdiDevice="nvidia.com/gpu_=all"), "must read vendor.com/class=name"),
    (_access(cdiDevice="nvidia.com/gpu=0,nvidia.com/gpu=1"), "must read vendor.com/class=name"),
    ({"imagePullSecrets": [{"name": "a" * 254}]}, "is no name of a Secret"),
    ({"priorityClassName": "a" * 254}, "is no name of a PriorityClass"),
    ({"image": "a b"}, "spec.agent.image: 'a b' must be an image reference"),
    ({"imagePullSecrets": [{"name": "A!"}]}, "spec.agent.imagePullSecrets[0].name: 'A!' is no name of a Secret"),
    ({"resources": {"limits": {"memory": "64MB"}}}, "spec.agent.resources.limits.memory: '64MB' is no quantity"),
    ({"resources": {"limits": {"memory": "-1"}}}, "is no quantity"),
    ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}}, "spec.agent.resources.requests.cpu: is above limits.cpu"),
    ({"env": [{"name": "NODE_NAME"}]}, "NODE_NAME is set by the operator"),
    ({"env": [{"name": "A"}, {"name": "A"}]}, "spec.agent.env[1].name: A is given twice"),
    ({"env": [{"name": "1A"}]}, "letters, digits and '_'"),
    ({"priorityClassName": "A B"}, "is no name of a PriorityClass"),
    ({"kubeletRootDir": "/var/../lib"}, "spec.agent.kubeletRootDir"),
    ({"kubeletRootDir": "var"}, "must be the absolute path"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), BAD_AGENT)
def test_invalid_agent_settings_are_refused(fields: dict[str, object], message: str):
    assert message in problems(obj(agent=fields))


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "0%", "101%", "10", "ten%", None])
def test_an_invalid_max_unavailable_is_refused(value: object):
    assert "spec.updateStrategy.maxUnavailable" in problems(obj(updateStrategy={"maxUnavailable": value}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metadata": {"name": "lab"}}, "spec: is missing"),
        ({"metadata": {"name": "lab"}, "spec": ["x"]}, "spec: ['x'] must be an object"),
        (
            obj({"resources": [entry(f"example.com/r{i}") for i in range(65)]}),
            "spec.resources: 65 resources, at most 64 in one object",
        ),
        (
            obj(nodePools=[{"name": f"p{i}"} for i in range(33)]),
            "spec.nodePools: 33 pools, at most 32 in one object",
        ),
        (obj({}), "spec.resources: must list at least one resource"),
        (obj({"resources": {}}), "spec.resources: must list at least one resource"),
        (obj(nodePools=[]), "spec.nodePools: must list at least one pool"),
        (obj(nodePools=["edge"]), "spec.nodePools[0]: must be an object, not a string"),
        (obj(nodePool=[]), "spec.nodePool: unknown field: did you mean nodePools?"),
        (obj(name="Lab"), "metadata.name: 'Lab' must be at most 40"),
        (obj(name="x" * 41), "metadata.name"),
        (obj(paused="yes"), "spec.paused: must be true or false"),
        (obj(resources=[entry(sharing=[])]), "spec.resources[0].sharing: must be an object, not a list"),
        (obj(updateStrategy={"maxSurge": 1}), "only field is maxUnavailable"),
    ],
)
def test_an_object_of_another_shape_is_refused(given: object, message: str):
    assert message in problems(given)


def test_all_problems_are_reported_at_once():
    text = problems(
        obj(
            {
                "resources": [entry(unit="colour"), entry("example.com/other", sharing={"replicas": 0})],
                "nodePools": [{"name": "a", "serves": ["x.y/z"]}, {"name": "a"}],
                "agent": {"image": ""},
            }
        )
    )
    for part in ("unit", "replicas", "serves[0]", "already the name of another pool", "agent.image"):
        assert part in text


def test_a_configuration_too_big_for_a_configmap_is_refused_with_its_size():
    env = [{"name": f"E{i}", "value": "x" * 4000} for i in range(32)]
    big = [entry(f"example.com/r{i}", inject={"env": env}) for i in range(8)]
    text = problems(obj(resources=big))
    assert f"(8 resources), but a ConfigMap holds at most {names.MAX_DOCUMENT_BYTES:,}" in text
    assert "divide the resources among pools with serves" in text
    halves = [
        {"name": n, "nodeSelector": {"half": n}, "serves": [r["name"] for r in part]}
        for n, part in (("a", big[:4]), ("b", big[4:]))
    ]
    assert len(spec({"resources": big, "nodePools": halves}).pools) == 2


def test_values_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec().paused = True  # type: ignore[misc]
    assert spec().resources[0].name == KVM


def _selected(**pool: object) -> object:
    return obj(nodePools=[{"name": "a", **pool}])


def _term(**term: object) -> object:
    return _selected(nodeSelectorTerms=[term])


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (_selected(nodeSelector={"a..b/c": "x"}), "is no label key"),
        (_selected(nodeSelector={"a-/c": "x"}), "is no label key"),
        (_selected(tolerations=[{"key": "a.-b/c", "operator": "Exists"}]), "is no label key"),
        (_term(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["Node A"]}]), "is no name of a node"),
        (_term(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["-5"]}]), "whole number without a sign"),
        (_term(matchExpressions=[{"key": "a", "operator": "Lt", "values": ["9" * 20]}]), "whole number without a sign"),
        (obj(agent={"resources": {"limits": {"gpu": 1}}}), "limits.gpu: is not a compute resource of agents"),
        (obj(agent={"resources": {"requests": {"example.com/x": "500m"}}}), "use cpu, memory"),
        (obj(agent={"env": [{"name": "A", "value": "a\0b"}]}), "agent.env[0].value: has a NUL"),
        (obj(agent={"kubeletRootDir": "/var//lib"}), "such as /var/lib/kubelet"),
        (obj(agent={"kubeletRootDir": "/var/lib/./x"}), "such as /var/lib/kubelet"),
        (obj(updateStrategy={"maxUnavailable": 2**31}), "a whole number from 1"),
        (
            obj({"resources": [entry()], 1: "x", "resurces": []}),
            "spec.resurces: unknown field: did you mean resources?",
        ),
    ],
)
def test_a_spec_whose_daemonset_would_be_refused_is_refused_first(given: object, part: str):
    assert part in problems(given)


@pytest.mark.parametrize(
    "given",
    [
        _selected(nodeSelector={"example.com/a.b_c": ""}),
        _term(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["node-1.example.com"]}]),
        _term(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["007"]}]),
        obj(agent={"resources": {"limits": {"cpu": 1, "memory": "1Gi", "ephemeral-storage": "1e9"}}}),
        obj(agent={"kubeletRootDir": "/var/lib/..kubelet/k0s.d"}),
        obj(agent=_access(driverRoot="/")),
        obj(agent=_access(driverRoot="/home/kubernetes/bin/nvidia")),
        obj(agent=_access(cdiDevice="management.nvidia.com/gpu=all")),
        obj(agent=_access(cdiDevice="runtime.nvidia.com/gpu=GPU-1:0_a.b")),
    ],
)
def test_a_spec_whose_daemonset_is_accepted_is_accepted(given: object):
    parse_spec(given)  # type: ignore[arg-type]
