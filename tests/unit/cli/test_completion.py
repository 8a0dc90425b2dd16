"""Completion: what kubectl is told for a line that is being typed."""

import pytest
from kubectl_devices.__main__ import parser
from kubectl_devices.commands.completion import _shapes, answer
from kubectl_devices.commands.registry import COMMANDS
from kubectl_devices.model.completion import Asked, asked, names
from unit.cli.made import device

SHAPES = _shapes(parser())


def ask(*words: str) -> Asked:
    return asked(SHAPES, words)


def test_commands_come_first_with_their_help():
    lines = answer(parser(), ["c"]).splitlines()
    assert [line.partition("\t")[0] for line in lines[:-1]] == [c.name for c in COMMANDS if c.name.startswith("c")]
    assert lines[-1] == ":4"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("cordon", ""), "node"),
        (("cordon", "n1", ""), "device"),
        (("cordon", "--reason", "x y", "n1", "a", "b"), "device"),
        (("list", "--resource", ""), "resource"),
        (("list", "--config", "l"), "config"),
        (("explain", "l"), "config"),
        (("who", ""), "name"),
        (("history", ""), "device"),
        (("history", "--node", ""), "node"),
    ],
)
def test_a_place_is_completed_with_names_of_its_kind(words: tuple[str, ...], kind: str):
    assert ask(*words).kind == kind


def test_what_stands_on_the_line_is_used():
    found = ask("cordon", "--context", "prod", "--kubeconfig=/k", "n1", "")
    assert found.given == {"context": "prod", "kubeconfig": "/k", "node": "n1"}


def test_flags_may_stand_before_the_command():
    assert ask("--context", "prod", "cordon", "n1", "").given == {"context": "prod", "node": "n1"}
    assert ask("--context", "prod", "").fixed == ask("").fixed
    assert ask("--kubeconfig", "").files


def test_flags_and_their_fixed_values_need_no_cluster():
    assert "--reason" in ask("cordon", "n1", "--").fixed
    assert ask("list", "-o", "").fixed == ("wide", "json", "yaml", "name")
    assert ask("list", "--output=w").fixed[0] == "--output=wide"
    assert answer(parser(), ["explain", "-f", ""]) == ":0\n"


@pytest.mark.parametrize("words", [(), ("nothing", ""), ("completion", "")])
def test_an_unknown_line_has_no_candidates_of_the_cluster(words: tuple[str, ...]):
    assert ask(*words).kind == ""


def test_names_are_sorted_and_those_of_the_node_alone():
    devices = [device("b", pods=("p",)), device("a"), device("z", node="n2", config="other")]
    assert names("device", devices, node="n1") == ("a", "b")
    assert names("name", devices) == ("a", "b", "pod/p", "z")
    assert names("node", devices) == ("n1", "n2")
    assert names("config", devices) == ("lab", "other")
    assert names("unknown", devices) == ()


def test_without_a_cluster_there_is_no_error(monkeypatch: pytest.MonkeyPatch):
    assert answer(parser(), ["cordon", "--kubeconfig", "/nothing", ""]) == ":4\n"
