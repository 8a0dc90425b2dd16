"""The command line without a cluster: mistakes in one line, colours on a terminal alone, and no traceback."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kubectl_devices.__main__ import main, parser
from kubectl_devices.commands.registry import COMMANDS
from kubectl_devices.model.table import table
from kubectl_devices.output import Output

ROOT = Path(__file__).resolve().parents[3]
GOOD = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
EXEC = "user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /nothing, interactiveMode: Never}}"


@pytest.mark.parametrize(
    ("text", "status", "fact"),
    [
        ("a: [b", 2, "YAML"),
        ("[]", 2, "kubeconfig"),
        ("", 2, "empty"),
        (GOOD.replace("current-context: x", "current-context: y"), 2, "y"),
        (GOOD.replace("https://127.0.0.1:1", "ftp://x"), 2, "ftp://x"),
        (GOOD.replace("user: {token: x}", "user: {client-certificate: /nothing.crt}"), 2, "/nothing.crt"),
        (GOOD.replace("user: {token: x}", EXEC), 2, "/nothing"),
        (GOOD, 1, "127.0.0.1:1"),
    ],
)
def test_a_kubeconfig_that_does_not_work_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, status: int, fact: str
):
    (tmp_path / "config").write_text(text)
    assert main(["list", "--kubeconfig", str(tmp_path / "config")]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert fact in line


def test_a_kubeconfig_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("KUBECONFIG", "/nothing/here")
    assert main(["list"]) == 2
    assert "/nothing/here" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "-f", "/nothing", "--tree", "/"),
        ("explain", "-f", str(ROOT / "LICENSE"), "--tree", "/"),
        ("explain", "-f", str(ROOT / "examples/demo.yaml"), "--tree", "/"),  # it has several pools
        ("explain", "-f", str(ROOT / "examples/demo.yaml"), "--tree", "/nothing", "--pool", "edge"),
        ("hardware",),
        ("hardware", "n1", "--tree", "/"),
        ("bundle", "-f", "/nothing/here.tar.gz"),
    ],
)
def test_a_mistake_in_the_command_line_is_told(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("command", [c.name for c in COMMANDS])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([command, "--help"])
    assert ended.value.code == 0
    assert command in capsys.readouterr().out


def test_flags_of_all_commands_may_stand_before_and_after_the_command():
    before = parser().parse_args(["--context", "a", "-n", "ns", "list"])
    both = parser().parse_args(["--context", "a", "list", "--context", "b"])
    assert (before.context, before.namespace, both.context, both.namespace) == ("a", "ns", "b", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


TABLE = table("DEVICE HEALTH", [("a", "Healthy"), ("b", "Unhealthy")])


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return Terminal()


def test_health_has_colours_on_a_terminal_and_the_same_columns(terminal: Terminal):
    Output(stdout=terminal).table(TABLE)
    assert "\x1b[32mHealthy" in terminal.getvalue()
    plain = io.StringIO()
    Output(stdout=plain).table(TABLE)
    assert plain.getvalue() == TABLE.text()


@pytest.mark.parametrize("how", ["flag", "NO_COLOR", "TERM"])
def test_colours_can_be_turned_off(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, how: str):
    if how != "flag":
        monkeypatch.setenv(how, {"NO_COLOR": "1", "TERM": "dumb"}[how])
    Output(plain=how == "flag", stdout=terminal).table(TABLE)
    assert terminal.getvalue() == TABLE.text()


def test_a_reader_that_ends_early_causes_no_traceback():
    sources = os.pathsep.join(str(ROOT / folder) for folder in ("cli", "operator", "plugin_agent"))
    command = f"{sys.executable} -m kubectl_devices hardware --tree / -o json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "PYTHONPATH": sources}, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
