"""The chart's CRDs are those of crds/, and keep and enabled do what they say."""

import importlib.util
from types import ModuleType

import pytest
import yaml
from localcluster import places

CRD = """\
# why it exists
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
spec:
  group: example.com
  x: "literal {{ and }} and {{{ stay"
"""
ANNOTATED = CRD.replace("  name: things", "  annotations:\n    a: b\n  labels:\n    c: d\n  name: things")


@pytest.fixture(scope="module")
def copy_crds() -> ModuleType:
    spec = importlib.util.spec_from_file_location("copy_crds", places.CHECKOUT / "scripts" / "copy_crds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_chart_is_in_step_with_crds(copy_crds):
    assert copy_crds.drift(source=copy_crds.SOURCE, target=copy_crds.TARGET) == []


def test_rendered_crds_are_the_sources(chart, objects, copy_crds):
    sources = {}
    for file in copy_crds.SOURCE.glob("*.yaml"):
        crd = yaml.safe_load(file.read_text())
        sources[crd["metadata"]["name"]] = crd
    rendered = {o["metadata"]["name"]: o for o in objects if o["kind"] == "CustomResourceDefinition"}
    assert (
        set(rendered)
        == set(sources)
        == {
            "devicepluginconfigs.device-operator.io",
            "nodedeviceinventories.device-operator.io",
        }
    )
    for name, crd in rendered.items():
        assert crd["spec"] == sources[name]["spec"]


def test_kinds_and_what_agents_need_are_kept_when_the_release_goes_unless_told_otherwise(chart):
    def kept(values):
        found = chart.template({"agent": {"criticalPodsQuota": {"enabled": True}}, **values})
        annotations = [(o["kind"], o["metadata"]["name"], o["metadata"].get("annotations", {})) for o in found]
        return sorted((kind, name) for kind, name, a in annotations if a.get("helm.sh/resource-policy") == "keep")

    needed = [
        ("ClusterRole", "do-device-operator-agent"),
        ("ClusterRoleBinding", "do-device-operator-agent"),
        ("CustomResourceDefinition", "devicepluginconfigs.device-operator.io"),
        ("CustomResourceDefinition", "nodedeviceinventories.device-operator.io"),
        ("ResourceQuota", "do-device-operator-critical"),
        ("ServiceAccount", "do-device-operator-agent"),
        ("ValidatingAdmissionPolicy", "do-device-operator-agent-node"),
        ("ValidatingAdmissionPolicyBinding", "do-device-operator-agent-node"),
    ]
    assert kept({}) == needed
    assert kept({"crds": {"keep": False}}) == []


def test_annotations_of_the_agents_account_stay_beside_the_policy(chart):
    found = chart.template({"agent": {"serviceAccount": {"annotations": {"cloud/role": "x"}}}})
    (account,) = [o for o in found if o["kind"] == "ServiceAccount" and o["metadata"]["name"].endswith("-agent")]
    assert account["metadata"]["annotations"] == {"cloud/role": "x", "helm.sh/resource-policy": "keep"}


def test_left_out_when_disabled(chart):
    rendered = chart.template({"crds": {"enabled": False}})
    assert rendered
    assert all(o["kind"] != "CustomResourceDefinition" for o in rendered)


def test_drift_is_found_and_copying_mends_it(copy_crds, tmp_path):
    source, target = tmp_path / "crds", tmp_path / "copies"
    source.mkdir()
    (source / "a.yaml").write_text(CRD)
    (source / "b.yaml").write_text(CRD)
    assert copy_crds.drift(source=source, target=target) == [
        "a.yaml: no copy in the chart",
        "b.yaml: no copy in the chart",
    ]
    copy_crds.copy(source=source, target=target)
    assert copy_crds.drift(source=source, target=target) == []
    (source / "b.yaml").unlink()
    (target / "a.yaml").write_text("edited by hand")
    assert copy_crds.drift(source=source, target=target) == [
        "a.yaml: the copy differs from its source",
        "b.yaml: a copy without a source",
    ]
    copy_crds.copy(source=source, target=target)
    assert copy_crds.drift(source=source, target=target) == []
    assert [file.name for file in target.iterdir()] == ["a.yaml"]


@pytest.mark.parametrize("text", [CRD, ANNOTATED, "---\n" + CRD])
@pytest.mark.parametrize("keep", [True, False])
def test_a_template_renders_to_its_source(chart, copy_crds, tmp_path, text, keep):
    """Braces in descriptions stay literal; labels and annotations are added to those of the source."""
    folder = tmp_path / "chart"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: x\nversion: 0.1.0\n")
    (folder / "templates" / "_helpers.tpl").write_text(
        '{{- define "device-operator.commonLabels" -}}\nl: m\n{{- end }}\n'
    )
    (folder / "templates" / "crd.yaml").write_text(copy_crds.template(text, name="crd.yaml"))
    done = chart.run("template", "do", str(folder), values={"crds": {"enabled": True, "keep": keep}})
    assert done.returncode == 0, done.stderr
    [rendered] = [document for document in yaml.safe_load_all(done.stdout) if document]
    wanted = yaml.safe_load(text)
    wanted["metadata"].setdefault("labels", {})["l"] = "m"
    if keep:
        wanted["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
    assert rendered == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CRD + "---\n" + CRD, "exactly one CustomResourceDefinition"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n", "exactly one CustomResourceDefinition"),
        (CRD.replace("metadata:\n  name: things.example.com", "metadata: {name: things.example.com}"), "a block"),
        (
            CRD.replace("  name:", "  annotations:\n    helm.sh/resource-policy: keep\n  name:"),
            "leaves helm.sh/resource-policy",
        ),
    ],
)
def test_a_source_that_cannot_be_copied_is_named(copy_crds, text, said):
    with pytest.raises(copy_crds.CrdError, match=said) as raised:
        copy_crds.template(text, name="bad.yaml")
    assert str(raised.value).startswith("bad.yaml: ")
