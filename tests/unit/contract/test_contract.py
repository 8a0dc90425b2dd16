"""The configuration document: the agent reads what the operator writes, and each mistake gets a line with a cure."""

import fnmatch
import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from device_agent.contract import attributes, check, globs, names
from device_agent.contract.codec import ShapeError, decode, encode
from device_agent.contract.document import (
    ContractError,
    Document,
    Policy,
    dump,
    parse,
    parse_resource,
)
from device_agent.contract.template import MissingAttributeError, TemplateError, parse_template
from hypothesis import given, settings
from hypothesis import strategies as st


def entry(**fields: Any) -> dict[str, Any]:
    return {"name": "example.com/dev", "devices": [{"files": {"paths": ["/dev/kvm"]}}], **fields}


def problems(*entries: dict[str, Any]) -> tuple[str, ...]:
    return check.problems(
        Document(tuple(parse_resource(e, path=f"spec.resources[{i}]") for i, e in enumerate(entries)))
    )


def test_a_dumped_document_is_parsed_back_and_dumped_to_equal_bytes():
    document = Document(
        (
            parse_resource(
                entry(
                    unit="pci.address",
                    exclude=[{"attribute": "driver", "values": ["vfio*"]}],
                    sharing={
                        "replicas": 4,
                        "perDevice": [{"match": {"attribute": "name", "values": ["a"]}, "replicas": 2}],
                    },
                    inject={"env": [{"name": "A", "value": "{name}", "counts": [1]}], "cdiDevices": ["v.com/c={name}"]},
                ),
                path="r",
            ),
        )
    )
    assert parse(dump(document)) == document
    assert dump(parse(dump(document))) == dump(document)


def test_shared_resources_spread_by_default_and_exclusive_ones_follow_the_topology():
    assert parse_resource(entry(), path="r").allocation.policy is Policy.TOPOLOGY
    assert parse_resource(entry(sharing={"replicas": 2}), path="r").allocation.policy is Policy.SPREAD
    chosen = entry(sharing={"replicas": 2}, allocation={"policy": "Packed"})
    assert parse_resource(chosen, path="r").allocation.policy is Policy.PACKED


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "contract version None"),
        (b'{"contractVersion": 2, "resources": []}', "contract version 2"),
        (b'{"contractVersion": 1}', "resources: is missing"),
        (b'{"contractVersion": 1, "resources": {}}', "resources: must be a list, not an object"),
        (b'{"contractVersion": 1, "resources": [{"name": "a/b"}]}', "resources[0].devices: is missing"),
        (
            b'{"contractVersion": 1, "resources": [], "resource": []}',
            "resource: unknown field: did you mean resources?",
        ),
    ],
)
def test_a_document_of_a_wrong_shape_is_refused_with_the_path(raw: bytes, message: str):
    with pytest.raises(ContractError) as error:
        parse(raw)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sharing": {"replicas": True}}, "r.sharing.replicas: must be a whole number, not true or false"),
        ({"sharing": {"replicas": "2"}}, "r.sharing.replicas: must be a whole number, not a string"),
        ({"sharing": {"replicas": 2.5}}, "r.sharing.replicas: must be a whole number, not a fraction"),
        ({"allocation": {"policy": "packed"}}, "r.allocation.policy: must be one of Packed, Spread, Topology"),
        ({"devices": [{"file": {}}]}, "r.devices[0].file: unknown field: did you mean files?"),
        ({"inject": {"mounts": [{"hostPath": "/a"}]}}, "r.inject.mounts[0].containerPath: is missing"),
        ({"unit": "\ud800"}, "r.unit: has '\\ud800' at character 0"),
        ({"maxDevices": 2**63}, "r.maxDevices: must be a number of at most 64 bits"),
        ({"a\nb": 1}, "r.'a\\nb': unknown field"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_with_the_path(fields: dict[str, Any], message: str):
    with pytest.raises(ContractError) as error:
        parse_resource(entry(**fields), path="r")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"devices": []}, "devices: is empty"),
        ({"devices": [{}]}, "exactly one source is needed, there is none"),
        ({"devices": [{"files": {"paths": ["/dev/a"]}, "sysfs": {"subsystem": "tty"}}]}, "there is sysfs and files"),
        ({"devices": [{"files": {"paths": []}}]}, "files.paths: is empty"),
        ({"devices": [{"files": {"paths": ["/etc/passwd"]}}]}, "must be an absolute path below /dev"),
        ({"devices": [{"files": {"paths": ["/dev/../etc/x"]}}]}, "without '..'"),
        ({"devices": [{"sysfs": {"subsystem": "a/b"}}]}, "must be the name of one directory"),
        ({"devices": [{"pci": {"ids": ["8086:09C4"]}}]}, "must be in lower case: '8086:09c4'"),
        ({"devices": [{"pci": {"ids": ["8086"]}}]}, "must be vendor:device"),
        ({"devices": [{"simulated": {"count": 20001}}]}, "20,001 devices x 1 replicas = 20,001 ids"),
        ({"name": "gpu"}, "it needs a domain and a name"),
        ({"name": "kubernetes.io/gpu"}, "kubernetes.io is reserved"),
        ({"name": "requests.x.com/gpu"}, "must not begin with 'requests.'"),
        ({"name": "Example.com/gpu"}, "DNS name in lower case"),
        ({"name": "example.com/-gpu"}, "beginning and ending with a letter or digit"),
        ({"name": "example.com/" + "g" * 64}, "1 to 63"),
        ({"name": "{name}/gpu"}, "only after the slash"),
        ({"name": "example.com/{position}"}, "unknown attribute 'position'"),
        ({"unit": "pci.adress"}, "did you mean 'pci.address'?"),
        ({"unit": "usb.serail"}, "did you mean 'usb.serial'?"),
        (
            {"exclude": [{"attribute": "colour", "values": ["*"]}]},
            "exclude[0].attribute: unknown attribute 'colour'; known here: name,",
        ),
        ({"exclude": [{"attribute": "attr.../x", "values": ["*"]}]}, "without '..'"),
        ({"sharing": {"replicas": 0}}, "replicas: 0 must be from 1 to 10000"),
        ({"allocation": {"counts": [4]}, "sharing": {"maxPerContainer": 2}}, "more than sharing.maxPerContainer 2"),
        ({"allocation": {"counts": [0]}}, "counts: 0 must be 1 or more"),
        ({"allocation": {"counts": [1, 2, 1]}}, "counts: 1 is given twice"),
        ({"maxDevices": -1}, "spec.resources[0].maxDevices: -1 must be 1 or more; omit it for no limit"),
        ({"sharing": {"maxPerContainer": -1}}, "spec.resources[0].sharing.maxPerContainer: -1 must be 1 or more"),
        ({"inject": {"env": [{"name": "A=B", "value": ""}]}}, "printable ASCII characters without '='"),
        ({"inject": {"env": [{"name": "GRÖSSE", "value": ""}]}}, "write it as NAME_1"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/a", "env": "A=B"}]}}, "deviceNodes[0].env: 'A=B'"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/infiniband/"}]}}, "a slash at the end: write /dev/infiniband"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/a", "containerPath": "/x//y/"}]}}, "write /x/y"),
        ({"inject": {"env": [{"name": "A", "value": "{attr.a*/b*/c}"}]}}, "only one directory or file name"),
        ({"inject": {"env": [{"name": "A", "value": "{attr.a*/../c}"}]}}, "without '..' and without a slash"),
        ({"inject": {"env": [{"name": "A", "value": "{"}]}}, "single '{'"),
        ({"inject": {"env": [{"name": "A", "value": "{}"}]}}, "'{}' is not an attribute name"),
        ({"inject": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}}, "already set by"),
        ({"inject": {"mounts": [{"hostPath": "/opt/../etc", "containerPath": "/x"}]}}, "without '..'"),
        ({"inject": {"mounts": [{"hostPath": "/{name}", "containerPath": "/x"}]}}, "needs a literal directory"),
        ({"inject": {"cdiDevices": ["gpu"]}}, "must read vendor.com/class=name"),
        ({"inject": {"cdiDevices": ["v.com/c=a b"]}}, "must read vendor.com/class=name"),
        ({"inject": {"cdiDevices": ["v.com/{name}=a"]}}, "must read vendor.com/class=name"),
        ({"inject": {"cdiDevices": ["v.com-/c={name}"]}}, "each part ends with a letter or digit"),
        ({"inject": {"cdiDevices": ["1v.com/c={name}"]}}, "must read vendor.com/class=name"),
        ({"inject": {"cdiDevices": ["v.com/c.={name}"]}}, "must read vendor.com/class=name"),
        ({"inject": {"cdiDevices": ["v.com/c={name}-"]}}, "must read vendor.com/class=name"),
        ({"inject": {"deviceNodes": [{}]}}, "give either own"),
        ({"inject": {"deviceNodes": [{"own": "a", "hostPath": "/dev/a"}]}}, "give either own"),
        ({"inject": {"deviceNodes": [{"own": "/dev/a"}]}}, "glob below /dev"),
        ({"inject": {"deviceNodes": [{"own": "tty*", "containerPath": "/dev/modem"}]}}, "maxPerContainer: 1"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/a", "permissions": "wr"}]}}, "r, w, m in this order"),
        ({"inject": {"deviceNodes": [{"hostPath": "/etc/a"}]}}, "below /dev"),
        ({"inject": {"ownNodes": "Listed"}}, "no entry there has own"),
        ({"devices": [{"simulated": {"count": -1}}]}, "count: -1 must be 0 or more"),
        ({"devices": [{"simulated": {"count": 2, "numaNodes": -1}}]}, "numaNodes: -1 must be from 0 to 64"),
        ({"devices": [{"simulated": {"count": 2, "numaNodes": 65}}]}, "numaNodes: 65 must be from 0 to 64"),
        ({"devices": [{"simulated": {"count": 2, "unhealthy": [0, 2]}}]}, "unhealthy: there is no index 2"),
        ({"devices": [{"files": {"paths": ["/dev/" + "a/" * 300 + "b"]}}]}, "has 606 characters, a path may have 512"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/" + "a" * 600}]}}, "a path may have 512"),
        ({"inject": {"mounts": [{"hostPath": "/" + "a" * 600, "containerPath": "/x"}]}}, "a path may have 512"),
        ({"devices": [{"files": {"paths": ["/dev/a\0"]}}]}, "has a NUL"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/a\0"}]}}, "has a NUL"),
        (
            {"inject": {"mounts": [{"hostPath": "/", "containerPath": "/host"}]}},
            "'/' must be a file or directory below /",
        ),
        ({"inject": {"mounts": [{"hostPath": "//opt", "containerPath": "/opt"}]}}, "write /opt"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/a", "containerPath": "/"}]}}, "'/' must be a file or dir"),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/c{position}"}]}}, "counts within one container"),
        (
            {"inject": {"mounts": [{"hostPath": "/run/c{position}", "containerPath": "/x"}]}},
            "counts within one container",
        ),
        ({"inject": {"deviceNodes": [{"hostPath": "/dev/c{index}", "containerPath": "/dev/c"}]}}, "maxPerContainer: 1"),
        ({"inject": {"env": [{"name": "A", "value": "{\n}"}]}}, "is not an attribute name"),
    ],
)
def test_each_mistake_gets_one_line_with_the_path_and_the_cure(fields: dict[str, Any], message: str):
    found = problems(entry(**fields))
    assert any(message in line for line in found), found
    assert all("\n" not in line and line.startswith("spec.resources[0]") for line in found)


def test_an_entry_without_sources_gets_only_that_problem():
    (line,) = problems(entry(devices=[], unit="colour", inject={"env": [{"name": "A", "value": "{uuid}"}]}))
    assert "devices: is empty" in line


MATCH = {"attribute": "profile", "values": ["1g.*"]}


UNCLOSED = "a[bc"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"devices": [{"pci": {"addresses": ["*", UNCLOSED]}}]}, "devices[0].pci.addresses"),
        ({"devices": [{"pci": {"drivers": [UNCLOSED]}}]}, "devices[0].pci.drivers"),
        ({"devices": [{"sysfs": {"subsystem": "block", "names": [UNCLOSED]}}]}, "devices[0].sysfs.names"),
        ({"devices": [{"files": {"paths": [f"/dev/{UNCLOSED}"]}}]}, "devices[0].files.paths"),
        (
            {"devices": [{"pci": {}, "include": [{"attribute": "name", "values": [UNCLOSED]}]}]},
            "devices[0].include[0].values",
        ),
        ({"exclude": [{"attribute": "name", "values": [UNCLOSED]}]}, "exclude[0].values"),
        (
            {"health": {"unhealthyWhen": [{"attribute": "name", "values": [UNCLOSED]}]}},
            "health.unhealthyWhen[0].values",
        ),
        (
            {"sharing": {"perDevice": [{"match": {"attribute": "name", "values": [UNCLOSED]}, "replicas": 2}]}},
            "sharing.perDevice[0].match.values",
        ),
        ({"inject": {"deviceNodes": [{"own": UNCLOSED}]}}, "inject.deviceNodes[0].own"),
    ],
)
def test_an_unclosed_bracket_in_a_glob_is_a_problem(fields: dict[str, Any], path: str):
    (line,) = problems(entry(**fields))
    assert line.startswith(f"spec.resources[0].{path}: '")
    assert "has a '[' without ']'" in line


@pytest.mark.parametrize(
    ("glob", "value", "told"),
    [
        ("[abc", "[abc", True),
        ("[]", "[]", True),
        ("[!]", "[!]", True),
        ("a[b]c[", "abc[", True),
        ("[abc]", "b", False),
        ("[]a]", "]", False),
        ("[!]a]", "b", False),
        ("x[[]y", "x[y", False),
        ("a]", "a]", False),
    ],
)
def test_unclosed_brackets_are_found_by_the_rules_of_fnmatch(glob: str, value: str, *, told: bool):
    assert fnmatch.fnmatchcase(value, glob)
    assert globs.unclosed(glob) == told


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": "nvidia.com/mig-{profile}"}, "name"),
        ({"unit": "parentUuid"}, "unit"),
        ({"exclude": [MATCH]}, "exclude[0].attribute"),
        ({"devices": [{"nvml": {}, "include": [MATCH]}]}, "devices[0].include[0].attribute"),
        (
            {"devices": [{"nvml": {}, "include": [MATCH]}, {"nvml": {"kind": "MIG"}}]},
            "devices[0].include[0].attribute",
        ),
        ({"sharing": {"perDevice": [{"match": MATCH, "replicas": 2}]}}, "sharing.perDevice[0].match.attribute"),
        ({"health": {"unhealthyWhen": [MATCH]}}, "health.unhealthyWhen[0].attribute"),
        ({"inject": {"env": [{"name": "A", "value": "{gi}"}]}}, "inject.env[0].value"),
        ({"inject": {"cdiDevices": ["nvidia.com/gpu={ci}"]}}, "inject.cdiDevices[0]"),
    ],
)
def test_attributes_of_mig_devices_are_refused_for_whole_gpus(fields: dict[str, Any], path: str):
    (line,) = problems({"name": "nvidia.com/gpu", "devices": [{"nvml": {"kind": "GPU"}}], **fields})
    assert line.startswith(f"spec.resources[0].{path}: devices of nvml: {{kind: GPU}} have no attribute ")
    assert "; it belongs to nvml: {kind: MIG}; known here: " in line


@pytest.mark.parametrize("beside", [[], [{"nvml": {"kind": "GPU"}}], [{"files": {"paths": ["/dev/kvm"]}}]])
def test_mig_devices_have_attributes_of_their_own(beside: list[dict[str, Any]]):
    devices = [{"nvml": {"kind": "MIG"}, "include": [MATCH]}, *beside]
    assert (
        problems({"name": "nvidia.com/{profile}", "devices": devices, "exclude": [MATCH], "unit": "parentUuid"}) == ()
    )


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"exclude": [{"attribute": "name", "values": []}]}, "exclude[0]"),
        (
            {"devices": [{"simulated": {"count": 1}, "include": [{"attribute": "name", "values": []}]}]},
            "devices[0].include[0]",
        ),
        (
            {"sharing": {"perDevice": [{"match": {"attribute": "name", "values": []}, "replicas": 2}]}},
            "sharing.perDevice[0].match",
        ),
        ({"health": {"unhealthyWhen": [{"attribute": "name", "values": []}]}}, "health.unhealthyWhen[0]"),
    ],
)
def test_a_match_needs_a_value(fields: dict[str, Any], path: str):
    (line,) = problems(entry(**fields))
    assert line.startswith(f"spec.resources[0].{path}.values: is empty, so nothing matches")


def test_a_resource_name_used_twice_names_both_entries():
    (line,) = problems(entry(), entry())
    assert "spec.resources[1].name: example.com/dev is already the name of spec.resources[0]" in line


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "example.com/{name}"},
        {"name": "nvidia.com/mig-{attr.profile}"},
        {"unit": "node"},
        {"unit": "usb.port"},
        {"devices": [{"pci": {"ids": ["15b3:*"], "classes": ["02*"], "addresses": ["0000:3b:*"]}}]},
        {"inject": {"env": [{"name": "QAT{position}", "value": "{name}"}]}},
        {"inject": {"env": [{"name": "A", "value": "1", "counts": [1]}, {"name": "A", "value": "2", "counts": [2]}]}},
        {"inject": {"deviceNodes": [{"own": "tty*", "containerPath": "/dev/m{position}"}]}},
        {"inject": {"deviceNodes": [{"own": "tty*", "containerPath": "/dev/m"}]}, "sharing": {"maxPerContainer": 1}},
        {"inject": {"mounts": [{"hostPath": "/opt/{name}", "containerPath": "/opt/{name}"}]}},
    ],
)
def test_a_correct_entry_has_no_problems(fields: dict[str, Any]):
    assert problems(entry(**fields)) == ()


def test_every_attribute_is_known_to_some_source_and_described():
    for attribute in attributes.ATTRIBUTES:
        assert attribute.sources
        assert attribute.description
        assert attributes.attribute_problem(attribute.name, sources=attribute.sources) is None
    assert attributes.attribute_problem("pci.address", sources={"simulated"}) is not None


def test_attribute_names_finds_every_attribute_of_an_entry():
    resource = parse_resource(
        entry(
            name="example.com/{attr.model}",
            exclude=[{"attribute": "pf.netName", "values": ["eth0"]}],
            inject={"env": [{"name": "A{position}", "value": "{pci.attr.rev}"}]},
            sharing={"perDevice": [{"match": {"attribute": "driver", "values": ["x"]}, "replicas": 2}]},
            unit="iommuGroup",
        ),
        path="r",
    )
    assert check.attribute_names(resource) == {"attr.model", "pf.netName", "pci.attr.rev", "driver", "iommuGroup"}


def test_templates_render_and_keep_literal_braces():
    template = parse_template("{{x}} {a}-{position}")
    assert template.render({"a": "1"}, position=3) == "{x} 1-3"
    assert template.names == ("a", "position")
    with pytest.raises(MissingAttributeError, match="a"):
        template.render({})


@settings(deadline=None)
@given(st.text())
def test_any_text_gives_a_template_or_a_template_error(text: str):
    try:
        template = parse_template(text)
    except TemplateError:
        assert "{" in text or "}" in text
    else:
        assert template.render(dict.fromkeys(template.names, "")) is not None


@settings(deadline=None)
@given(st.text(min_size=1), st.integers(0, 10_000), st.one_of(st.none(), st.text(min_size=1)))
def test_ids_are_short_and_printable_and_replicas_differ_from_the_device(value: str, index: int, entry: str | None):
    device = names.device_id(value, entry=entry)
    assert 1 <= len(device) <= 63
    assert device.isascii()
    assert device.isprintable()
    replica = names.replica_id(device, index)
    assert len(replica) <= 63
    assert (replica == device) == (index == 0)


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), min_size=2, max_size=8, unique=True))
def test_different_values_give_different_ids(values: list[str]):
    assert len({names.device_id(v) for v in values}) == len(values)


@settings(deadline=None)
@given(st.text())
def test_a_name_made_from_any_text_is_valid_or_refused(text: str):
    try:
        name = names.resource_name_from(f"example.com/{text}")
    except ValueError:
        return
    assert names.resource_name_problem(name) is None


def test_pool_objects_of_different_pools_never_share_a_name():
    assert names.pool_object_name("a-b", "c") != names.pool_object_name("a", "b-c")
    longest = names.pool_object_name("c" * 40, "p" * 20)
    assert len(f"{longest}-v1") <= 253
    assert len(longest) <= 63 + 9


def test_a_dumped_document_has_camel_case_names_and_defaults():
    data = json.loads(dump(Document((parse_resource(entry(), path="r"),))))
    assert data["contractVersion"] == 1
    assert data["resources"][0]["sharing"] == {"replicas": 1, "maxPerContainer": 0, "perDevice": []}


def nvml(**health: Any) -> dict[str, Any]:
    return {"name": "example.com/gpu", "devices": [{"nvml": {"kind": "GPU"}}], "health": health}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (nvml(intervalSeconds=0), "spec.resources[0].health.intervalSeconds: 0 must be from 1 to 3600"),
        (nvml(failureThreshold=0), "health.failureThreshold: 0 must be from 1 to 100"),
        (nvml(recoveryThreshold=1001), "health.recoveryThreshold: 1001 must be from 1 to 1000"),
        (nvml(removalGraceSeconds=-1), "health.removalGraceSeconds: -1 must be from 0 to 86400"),
        (nvml(ignoreXids=[0]), "health.ignoreXids[0]: 0 must be from 1 to 999"),
        (nvml(xids=[{"xid": 79}, {"xid": 79, "clears": "Quiet"}]), "health.xids[1].xid: 79 is given twice"),
        (nvml(xids=[{"xid": 31}], ignoreXids=[31]), "health.xids[0].xid: 31 is in ignoreXids too"),
        (nvml(unhealthyWhen=[{"attribute": "usb.port", "values": ["1"]}]), "devices of nvml have no attribute"),
        (entry(health={"ignoreXids": [31]}), "errors of the NVIDIA driver, and no source here is nvml"),
        (
            entry(inject={"ownNodes": "None", "deviceNodes": [{"own": "kvm"}]}),
            "inject.deviceNodes[0].own: ownNodes None gives no own nodes, so 'kvm' selects nothing",
        ),
    ],
)
def test_wrong_health_rules_and_own_nodes_are_problems(given: dict[str, Any], message: str):
    (found,) = problems(given)
    assert message in found


def test_correct_health_rules_have_no_problems():
    good = nvml(
        unhealthyWhen=[{"attribute": "attr.state", "values": ["disabled"]}],
        removalGraceSeconds=0,
        ignoreXids=[31, 43],
        xids=[{"xid": 94, "clears": "Quiet"}, {"xid": 999}],
    )
    assert problems(good) == ()
    (resource,) = (parse_resource(good, path="r"),)
    assert "attr.state" in check.attribute_names(resource)


def test_the_codec_writes_times_in_utc_and_refuses_times_without_a_zone():
    @dataclass(frozen=True)
    class Seen:
        at: datetime

    moment = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=2)))
    written = encode(Seen(at=moment))
    assert written == {"at": "2026-01-31T10:00:00.250000+00:00"}
    assert decode(Seen, written, path="") == Seen(at=moment)
    for wrong in ("2026-01-31T10:00:00", "yesterday", "0001-01-01T00:00:00+05:00", 7, None):
        with pytest.raises(ShapeError, match="at: must be a time with its time zone"):
            decode(Seen, {"at": wrong}, path="")
