"""Is a command of the guides one that its program takes? Programs of this project answer by their own parsers."""

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import device_agent.__main__ as agent
import device_operator.__main__ as operator
import jsonschema
import kubectl_devices.__main__ as cli
import yaml
from unit.docs.pages import CHECKOUT, programs

CHART = CHECKOUT / "charts/device-operator"
VERBS = {  # verb -> does a resource follow
    "annotate": True, "apply": False, "create": True, "delete": True, "describe": True, "edit": True, "exec": False,
    "explain": True, "get": True, "label": True, "logs": False, "patch": True, "replace": False, "rollout": False,
    "taint": True, "wait": True, "completion": False, "cordon": False, "krew": False,
}  # fmt: skip
RESOURCES = {
    "clusterrolebinding", "clusterrolebindings", "clusterroles", "controllerrevision", "controllerrevisions", "crd",
    "devicepluginconfigs", "dpc", "events", "namespace", "ndi", "node", "nodes", "pod", "pods", "quota", "servicemonitors",
    "resourcequotas", "serviceaccounts", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
}  # fmt: skip
VALUED = {"-n", "-o", "-f", "-l", "-p", "-c", "--kubeconfig", "--context", "--patch-file"}
"""Flags of kubectl whose value is the next word."""
HELM = {"install", "upgrade", "uninstall", "test", "list", "history", "rollback", "get", "template"}
OTHERS = {"chmod", "docker", "jq", "nvidia-ctk", "pipx", "python3", "sed", "systemctl", "xargs"}
MODULES = {"device_operator": operator.parser, "device_agent": agent.parser, "kubectl_devices": cli.parser}


def mistakes(line: str) -> list[str]:
    """What is wrong with a command line; nothing if every program in it takes its arguments."""
    found = []
    for words in programs(line):
        program, *rest = words or [""]
        name = Path(program).name
        found += CHECKS[name](rest) if name in CHECKS else [] if name in OTHERS else [f"unknown program {program!r}"]
    return found


def kubectl(words: Sequence[str]) -> list[str]:
    plain = list(_positional(words))
    if not plain:
        return []
    verb, *rest = plain
    if verb == "devices":
        return parsed(cli.parser, words[words.index("devices") + 1 :])
    if verb not in VERBS:
        return [f"kubectl has no verb {verb}"]
    if verb == "exec" and "--" in words:
        return executed(words[words.index("--") + 1 :])
    if not VERBS[verb] or not rest or "-f" in words:
        return []
    kinds = re.split(r"[/]", rest[0])[0].split(".")[0] if verb != "delete" else rest[0].split("/")[0]
    return [f"unknown resource {kind}" for kind in kinds.split(",") if kind not in RESOURCES]


def _positional(words: Sequence[str]) -> Iterator[str]:
    skip = False
    for word in words:
        if word == "--":
            return
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in VALUED
        else:
            yield word


def executed(words: Sequence[str]) -> list[str]:
    """`python -P -m MODULE ...` in a container."""
    if "-m" not in words:
        return [f"not a module: {' '.join(words)}"]
    module, *rest = words[words.index("-m") + 1 :]
    return parsed(MODULES[module], rest)


def parsed(parser: Callable[[], Any], words: Sequence[str]) -> list[str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            parser().parse_args(words)
    except SystemExit as ended:
        return [said.getvalue().strip().rpartition("\n")[2]] if ended.code else []
    return []


def helm(words: Sequence[str]) -> list[str]:
    verb, *rest = words
    if verb not in HELM:
        return [f"helm has no verb {verb}"]
    found = [f"no chart {word}" for word in rest if word.startswith("charts/") and not (CHECKOUT / word).is_dir()]
    given = [rest[n + 1] for n, word in enumerate(rest) if word in ("--set", "--set-string")]
    given += [word.partition("=")[2] for word in rest if word.startswith("--set") and "=" in word]
    return [*found, *(said for text in given for said in values(text))]


def values(text: str) -> Iterator[str]:
    """Mistakes in what `--set` has, by the chart's schema."""
    merged = yaml.safe_load((CHART / "values.yaml").read_text())
    for item in text.split(","):
        path, _, value = item.partition("=")
        *folders, name = path.split(".")
        place = merged
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = yaml.safe_load(value)
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    yield from (error.message for error in jsonschema.Draft7Validator(schema).iter_errors(merged))


def make(words: Sequence[str]) -> list[str]:
    targets = re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    return [f"make has no target {word}" for word in words if "=" not in word and word not in targets]


CHECKS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "kubectl": kubectl,
    "k": kubectl,
    "d": lambda words: parsed(cli.parser, words),
    "helm": helm,
    "make": make,
    "device-operator": lambda words: parsed(operator.parser, words),
    "device-agent": lambda words: parsed(agent.parser, words),
}
