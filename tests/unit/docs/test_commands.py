"""Every command in the guides is one that its program takes. Every block of commands says which test runs it, or that none does."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from localcluster import demo
from unit.docs.checker import mistakes
from unit.docs.pages import CHECKOUT, PAGES, Block, blocks, commands, spans

BLOCKS = [block for path in PAGES for block in blocks(path)]


def test_commands_are_found():
    assert len(BLOCKS) > 40
    assert len([line for path in PAGES for line in spans(path)]) > 80


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_command_of_a_block_is_one_that_its_program_takes(block: Block):
    assert [said for line in block.commands for said in mistakes(line)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_every_command_in_the_text_is_one_that_its_program_takes(path: Path):
    found = {line: [text for text in mistakes(line) if "required" not in text] for line in spans(path)}  # a name alone
    assert {line: said for line, said in found.items() if said} == {}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_says_which_test_runs_it_or_the_page_says_that_none_does(block: Block):
    kind, text = block.mark
    assert kind, "write <!-- run by: TEST -->, <!-- tried by: TEST: how --> or <!-- not tried: why --> before the block"
    if kind == "not tried":
        assert re.search(r"^Not tried:", block.page.read_text(), re.MULTILINE), (
            "the page must have a line that begins so"
        )
        return
    for where in re.findall(r"tests/\S+\.py(?:::\w+)?", text) or re.findall(r"make \w+", text) or [text]:
        file, _, name = where.partition("::")
        if file.startswith("make "):
            assert mistakes(file) == []
            continue
        source = (CHECKOUT / file).read_text()
        assert f"def {name}(" in source or not name
        assert kind != "run by" or block.page.name in source, "a test that runs the page must read it"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kubectl gett dpc", "no verb"),
        ("kubectl get dpcs", "unknown resource"),
        ("kubectl get -n a dpc,ndis", "unknown resource"),
        ("kubectl devices lst", "invalid choice"),
        ("kubectl devices list --heald a", "unrecognized"),
        ("kubectl get dpc | kubectl devices drain", "required"),
        ('kubectl get "$(kubectl gett dpc)"', "no verb"),
        ("d cordon", "required"),
        ("device-operator rendr -f a", "invalid choice"),
        ("kubectl exec POD -- python -P -m device_agent scan --tree /", "unrecognized"),
        ("helm upgrad a b", "no verb"),
        ("helm install a charts/other", "no chart"),
        ("helm upgrade a charts/device-operator --set operator.image.repo=x", "repo"),
        ("helm upgrade a charts/device-operator --set operator.replicas=x", "'x'"),
        ("make tests", "no target"),
        ("kubectl-device list", "unknown program"),
    ],
)
def test_a_mistake_in_a_command_is_found(line: str, said: str):
    assert any(said in text for text in mistakes(line)), mistakes(line)


def test_lines_of_a_block_are_commands_or_output():
    assert list(commands("$ a \\\n  b\noutput\n$ c\n", "")) == ["a    b", "c"]
    assert list(commands("# why\na |\n  b\nc\n", "sh")) == ["a | b", "c"]
    assert list(commands("key: value\n", "yaml")) == list(commands("text\n", "")) == []


def hints(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The commands that the demo prints at its end."""
    demo._next_steps(cast("Any", SimpleNamespace(kubectl_command="kubectl --kubeconfig /k")))
    return re.findall(r"^  ((?:k|d|make) .*?)(?:  |$)", capsys.readouterr().out, re.MULTILINE)


def test_the_hints_of_the_demo_are_true(capsys: pytest.CaptureFixture[str]):
    found = hints(capsys)
    assert len(found) > 6
    assert [said for line in found for said in mistakes(line)] == []
    served = served_by("demo.yaml")
    assert any("simulated" in devices for _, devices in served), "one hint edits simulated.count"


def served_by(name: str) -> list[tuple[str, str]]:
    """(resource, devices) of an example."""
    spec = yaml.safe_load((CHECKOUT / "examples" / name).read_text())["spec"]
    return [(entry["name"], str(entry["devices"])) for entry in spec["resources"]]


def test_what_the_guides_apply_on_the_demo_shares_no_name_and_no_device_with_it(capsys: pytest.CaptureFixture[str]):
    told = [
        *hints(capsys),
        *(line for block in BLOCKS if block.page.name in ("README.md", "tutorial.md") for line in block.commands),
    ]
    applied = {name for line in told for name in re.findall(r"apply -f examples/(\S+)", line)}
    configs = {name for name in applied if "pod" not in name} - {"demo.yaml"}
    assert configs == {"first.yaml"}
    demo_names = {name for name, _ in served_by("demo.yaml")}
    for resource, devices in served_by("first.yaml"):
        assert resource not in demo_names
        assert "simulated" in devices, "another object's simulated devices are never the same hardware"
