"""Mistakes in a file, with the text that `device-operator render` and `kubectl devices explain` give.

Each text names the path, what is wrong, and the cure. The first table is for eyes too: it is what an admin reads.
"""

from typing import Any

import pytest
from bad_specs import CASES, Case, config, entry
from device_operator.runtime.errors import InvalidSpecError
from device_operator.spec import bounds
from device_operator.spec.written import parse_written


def told(obj: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidSpecError) as refused:
        parse_written(obj)
    return refused.value.problems


def one(**fields: Any) -> dict[str, Any]:
    return config({"resources": [entry(**fields)]})


def env(name: str, value: str = "", **fields: Any) -> dict[str, Any]:
    return one(inject={"env": [{"name": name, "value": value, **fields}]})


def node(**fields: Any) -> dict[str, Any]:
    return one(inject={"deviceNodes": [fields]})


def source(**fields: Any) -> dict[str, Any]:
    return one(devices=[fields])


def top(**fields: Any) -> dict[str, Any]:
    return config({"resources": [entry()], **fields})


def pool(**fields: Any) -> dict[str, Any]:
    return top(nodePools=[{"name": "edge", **fields}])


R, N, P, A = "spec.resources[0]", "spec.resources[0].inject.deviceNodes[0]", "spec.nodePools[0]", "spec.agent"

MISTAKES = (  # the object, the path of its problem, what the text must have besides
    (one(presett="x"), f"{R}.presett", "did you mean preset?"),
    (one(colour="x"), f"{R}.colour", "preset"),
    (top(nodepools=[]), "spec.nodepools", "did you mean nodePools?"),
    (one(maxDevices=0), f"{R}.maxDevices", "omit the field"),
    (one(maxDevices="8"), f"{R}.maxDevices", "a whole number"),
    (one(sharing={"maxPerContainer": 0}), f"{R}.sharing.maxPerContainer", "omit the field"),
    (one(ownership="Shared"), f"{R}.ownership", "Exclusive, None"),
    (one(allocation={"counts": list(range(1, 40))}), f"{R}.allocation.counts", "at most"),
    (config({"resources": [{"name": "example.com/nic"}]}), f"{R}.devices", "or a preset that has devices"),
    (source(pci={"ids": ["10DE:1EB8"]}), f"{R}.devices[0].pci", "'10de:1eb8'"),
    (source(pci={"ids": ["0x10de:0x1eb8"]}), f"{R}.devices[0].pci.ids", "write '10de:1eb8'"),
    (source(files={"paths": ["/dev/infiniband/"]}), f"{R}.devices[0].files.paths", "write /dev/infiniband"),
    (source(files={"paths": ["kvm"]}), f"{R}.devices[0].files.paths", "write it as /dev/kvm"),
    (source(files={"paths": ["/dev/../etc"]}), f"{R}.devices[0].files.paths", "without '..'"),
    (source(usb={"ids": ["0403:6001"]}), f"{R}.devices[0].usb", "pci, sysfs, files"),
    (source(sysfs={"subsystem": "class/tty"}), f"{R}.devices[0].sysfs.subsystem", "such as block"),
    (node(own="kvm", containerPath="/dev/infiniband/"), f"{N}.containerPath", "write /dev/infiniband"),
    (node(hostPath="/dev//kvm"), f"{N}.hostPath", "write /dev/kvm"),
    (node(hostPath="/etc/shadow"), f"{N}.hostPath", "below /dev"),
    (node(own="/dev/kvm"), f"{N}.own", "write dri/renderD*"),
    (node(own="kvm", permissions="wr"), f"{N}.permissions", "such as rw"),
    (env("A=B"), f"{R}.inject.env[0].name", "write it as NAME_1"),
    (env("A", "{pci.adress}"), f"{R}.inject.env[0].value", "did you mean 'pci.address'?"),
    (env("A", "{attr.*/*/x}"), f"{R}.inject.env[0].value", "write the other names in full"),
    (env("A", "{}"), f"{R}.inject.env[0].value", "{pci.address}"),
    (env("A", "${path}"), f"{R}.inject.env[0].value", "write {path}"),
    (env("A", "x" * 5000), f"{R}.inject.env[0].value", "shorten it"),
    (env("A", counts=[0]), f"{R}.inject.env[0].counts", "omit it for all"),
    (one(health={"intervalSeconds": 0}), f"{R}.health.intervalSeconds", "from 1 to 3600"),
    (one(name="nic"), f"{R}.name", "example.com/device"),
    (pool(serves=[]), f"{P}.serves", "omit the field"),
    (pool(serves=["example.com/nics"]), f"{P}.serves[0]", "did you mean example.com/nic?"),
    (pool(name=""), f"{P}.name", "lower-case letters"),
    (pool(tolerations=[{"effect": "NoSchedule"}]), f"{P}.tolerations[0]", "Exists"),
    (top(updateStrategy={"maxUnavailable": "10 %"}), "spec.updateStrategy.maxUnavailable", "from 1% to 100%"),
    (top(agent={"resources": {"limits": {"memory": "64MB"}}}), f"{A}.resources.limits.memory", "64Mi"),
    (top(agent={"env": [{"name": "A-B"}]}), f"{A}.env[0].name", "letters, digits and '_'"),
    (top(agent={"imagePullSecrets": [{"name": "My Secret"}]}), f"{A}.imagePullSecrets[0].name", "lower-case"),
    (top(agent={"priorityClassName": "System"}), f"{A}.priorityClassName", "lower-case"),
    (top(agent={"kubeletRootDir": "kubelet/"}), f"{A}.kubeletRootDir", "/var/lib/kubelet"),
    (top(paused="yes"), "spec.paused", "true or false"),
)


@pytest.mark.parametrize(("obj", "path", "cure"), MISTAKES, ids=[f"{p}-{c}" for _, p, c in MISTAKES])
def test_each_text_names_the_path_and_leads_to_the_cure(obj: dict[str, Any], path: str, cure: str) -> None:
    (problem,) = told(obj)
    assert problem.startswith(f"{path}: ")
    assert cure in problem
    assert "\n" not in problem


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_what_the_api_server_or_the_operator_refuses_is_refused(case: Case) -> None:
    assert all(problem.partition(": ")[2] for problem in told(case.object))


def test_null_is_a_field_that_is_not_there() -> None:
    spec = parse_written(one(sharing=None, maxDevices=None, inject={"env": None}))
    assert spec == parse_written(one(inject={}))
    (problem,) = told(one(exclude=[None]))
    assert problem.startswith(f"{R}.exclude[0]: ")


def test_each_bound_of_the_schema_is_checked() -> None:
    """The schema's words: one that the check does not know would be passed over."""
    known = {
        *("type", "format", "properties", "required", "items", "additionalProperties", "enum", "pattern"),
        *("anyOf", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
        *(
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-int-or-string",
            "x-kubernetes-map-type",
        ),
    }

    def words(schema: Any) -> set[str]:
        inner = [*schema.get("properties", {}).values()]
        inner += [schema[k] for k in ("items", "additionalProperties") if isinstance(schema.get(k), dict)]
        return set(schema).union(*map(words, inner))

    assert words(bounds.schema()) <= known
