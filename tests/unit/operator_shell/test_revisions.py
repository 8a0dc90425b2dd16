"""An accepted spec as a ControllerRevision: its form, and how changes by hand are noticed."""

import copy
from typing import Any

import pytest
from device_operator.cluster.revisions import LABEL, Revision, revision, revision_body, revision_name
from device_operator.render.manifests import RenderSettings, render
from device_operator.spec.model import ConfigRef
from device_operator.spec.parsing import parse_spec

LAB = ConfigRef("lab", "uid-lab")
SPEC: dict[str, Any] = {"resources": [{"name": "example.com/a", "devices": [{"simulated": {"count": 1}}]}]}


def written(ref: ConfigRef = LAB, *, generation: int = 3, spec: Any = None) -> dict[str, Any]:
    """As the API server gives it back."""
    body = copy.deepcopy(revision_body(ref, generation=generation, spec=spec or SPEC, namespace="n"))
    body["metadata"]["uid"] = "uid-revision"
    return body


def test_a_written_revision_is_read_back() -> None:
    found = revision(written(), None)
    assert (found.config, found.owner_uid, found.generation, found.intact) == ("lab", "uid-lab", 3, True)
    assert found.spec == parse_spec({"metadata": {"name": "lab"}, "spec": SPEC})


def test_the_name_is_bounded_and_differs_by_owner_generation_and_spec() -> None:
    longest = ConfigRef("a" * 40, "u")
    assert len(revision_name(longest, generation=2**63 - 1, spec=SPEC)) <= 71
    others = [
        revision_name(LAB, generation=4, spec=SPEC),
        revision_name(ConfigRef("lab", "another"), generation=3, spec=SPEC),
        revision_name(LAB, generation=3, spec={**SPEC, "paused": True}),
    ]
    assert revision_name(LAB, generation=3, spec=SPEC) not in others
    assert len(set(others)) == 3


def test_it_is_owned_as_by_a_controller_and_fits_no_selector_of_a_daemonset() -> None:
    meta = written()["metadata"]
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("DevicePluginConfig", "uid-lab", True)
    given = {**SPEC, "nodePools": [{"name": "default"}, {"name": "accepted-spec"}]}
    spec = parse_spec({"metadata": {"name": "lab"}, "spec": given})
    manifests = render(LAB, spec, RenderSettings(namespace="n", agent_image="example.com/a:1"))
    selectors = [m.body["spec"]["selector"]["matchLabels"] for m in manifests if m.kind == "DaemonSet"]
    assert len(selectors) == 2
    for selector in selectors:
        assert not selector.items() <= meta["labels"].items()


def forged_spec(raw: dict[str, Any]) -> None:
    raw["data"] = {"resources": [{**SPEC["resources"][0], "name": "example.com/forged"}]}


def other_generation(raw: dict[str, Any]) -> None:
    raw["revision"] = 9


def other_owner(raw: dict[str, Any]) -> None:
    raw["metadata"]["ownerReferences"][0]["uid"] = "another"


def no_owner(raw: dict[str, Any]) -> None:
    raw["metadata"]["ownerReferences"] = []


def no_data(raw: dict[str, Any]) -> None:
    del raw["data"]


@pytest.mark.parametrize("damage", [forged_spec, other_generation, other_owner, no_owner, no_data])
def test_a_revision_that_was_changed_is_not_intact(damage: Any) -> None:
    raw = written()
    damage(raw)
    assert not revision(raw, None).intact


def test_a_spec_that_this_version_cannot_read_is_intact_and_says_what_is_wrong() -> None:
    found = revision(written(spec={**SPEC, "fromTheFuture": 1}), None)
    assert (found.intact, found.spec) == (True, None)
    assert "spec.fromTheFuture" in found.problem


def test_a_spec_is_parsed_once() -> None:
    before = revision(written(), None)
    relabelled = written()
    relabelled["metadata"]["labels"]["more"] = "x"
    assert revision(relabelled, before).spec is before.spec
    relabelled["metadata"]["labels"][LABEL] = "another"
    found: Revision = revision(relabelled, before)
    assert not found.intact
