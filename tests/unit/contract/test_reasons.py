"""The guides list every reason of agent and operator with its meaning, and no other reason."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from device_agent.contract import config_reasons, node_reasons, reasons
from kubectl_devices.model.soundness.finding import CheckReason

CHECKOUT = Path(__file__).parents[3]
GUIDES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
GUIDES.remove(CHECKOUT / "docs" / "decisions.md")  # it names classes of the code, which look like reasons
PAGE = (CHECKOUT / "docs" / "troubleshooting.md").read_text()
WORDS = [
    cls
    for cls in (vars(reasons) | vars(node_reasons) | vars(config_reasons)).values()
    if isinstance(cls, type) and issubclass(cls, reasons.Word) and list(cls)
]
CAMEL = re.compile(r"`([A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+)`")

KUBERNETES = {
    "CreateContainerConfigError", "DaemonSet", "ErrImagePull", "FailedCreatePodSandBox", "TopologyAffinityError",
    "UnexpectedAdmissionError",
}  # fmt: skip
"""Names and reasons of Kubernetes."""
LOGGED = {"StreamEnded"}
"""Causes of a registration. They are only in the agent's log."""


def api_words() -> set[str]:
    """Kinds and enum values of our CRDs."""
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.update(v for v in node.get("enum", ()) if isinstance(v, str))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    for path in (CHECKOUT / "crds").glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        found.add(crd["spec"]["names"]["kind"])
        walk(crd)
    return found


def test_the_classes_of_reasons_are_found():
    assert {"DeviceReason", "ExclusionReason", "NodeReason", "ConditionReason"} <= {cls.__name__ for cls in WORDS}


@pytest.mark.parametrize("words", WORDS, ids=lambda cls: cls.__name__)
def test_troubleshooting_lists_every_reason_with_its_meaning(words: type[reasons.Word]):
    _, begun, rest = PAGE.partition(f"<!-- {words.__name__}: ")
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.*) \|$", rest.partition(f"<!-- end of {words.__name__} -->")[0], re.MULTILINE)
    )
    assert begun
    assert list(rows) == [str(word) for word in words]
    plain = {word: re.sub(r"\[(\S+?)\]\(\1#(\S+?)\)", r"docs/\1#\2", text) for word, text in rows.items()}
    assert plain == {str(word): word.meaning for word in words}


@pytest.mark.parametrize("words", WORDS, ids=lambda cls: cls.__name__)
def test_a_meaning_fits_into_a_table_and_has_short_sentences(words: type[reasons.Word]):
    for word in words:
        assert word.meaning.endswith("."), word
        assert "\n" not in word.meaning
        assert "|" not in word.meaning
        assert max(len(sentence.split()) for sentence in word.meaning.split(". ")) <= 25, word


@pytest.mark.parametrize("words", WORDS, ids=lambda cls: cls.__name__)
def test_a_reason_is_found_by_its_value_and_is_camel_case(words: type[reasons.Word]):
    for word in words:
        assert words(str(word)) is word
        assert re.fullmatch(r"(?:[A-Z][a-z0-9]*)+", word)


def test_the_guides_name_only_existing_reasons():
    known = {str(word) for cls in WORDS for word in cls} | api_words() | KUBERNETES | LOGGED | {*CheckReason}
    unknown = {
        f"{path.name}: {word}" for path in GUIDES for word in CAMEL.findall(path.read_text()) if word not in known
    }
    assert unknown == set()


def test_links_in_meanings_lead_to_existing_headings():
    for cls in WORDS:
        for word in cls:
            for page, anchor in re.findall(r"docs/([a-z-]+\.md)#([a-z0-9-]+)", word.meaning):
                headings = re.findall(r"^#+ (.*)$", (CHECKOUT / "docs" / page).read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
                assert anchor in anchors, word
