"""What the site makes of the pages: links, and Markdown as Python-Markdown wants it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import markdown
import pytest
import yaml
from unit.docs.pages import CHECKOUT


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", CHECKOUT / "scripts/docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("folder", "link", "there"),
    [
        ("docs", "(health.md#states)", "(health.md#states)"),
        ("docs", "(../README.md#installing)", "(index.md#installing)"),
        ("docs", "(../charts/device-operator/README.md)", "(chart.md)"),
        ("docs", "(../examples/first.yaml)", "(examples/first.yaml)"),
        ("docs", "(../examples/)", "(examples.md)"),
        (".", "(docs/health.md#states)", "(health.md#states)"),
        (".", "(examples/)", "(examples.md)"),
        (".", "(LICENSE)", "(LICENSE)"),
        (".", "(#two-commands)", "(#two-commands)"),
        (".", "(https://example.com/a.md)", "(https://example.com/a.md)"),
    ],
)
def test_links_lead_to_the_pages_of_the_site(site: ModuleType, folder: str, link: str, there: str):
    assert site.linked(f"[text]{link}", CHECKOUT / folder) == f"[text]{there}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Look at:\n- one\n  goes on\n- two\n", {"<ul>": 1, "<li>": 2}),
        ("- one\n  - below it\n", {"<ul>": 2}),
        ("- one\n\nText:\n1. a\n2. b\n", {"<ul>": 1, "<ol>": 1}),
        ("- one:\n  ```sh\n  run\n  ```\n- two\n", {"<ul>": 1, "<pre>": 1}),
        ("## Head\n| a | b |\n|---|---|\n| `x\\|y` | z |\n", {"<table>": 1, "<code>x|y</code>": 1}),
        ("Text:\n| a | b |\n|---|---|\n| c | d |\n", {"<table>": 1, "<td>": 2}),
        ("```\n- no list\n| no | table\n```\n", {"<ul>": 0, "<table>": 0}),
    ],
)
def test_lists_tables_and_code_are_what_they_are_in_the_files(site: ModuleType, text: str, parts: dict[str, int]):
    made = markdown.markdown(site.spaced(text), extensions=["tables", "pymdownx.superfences"])
    assert {part: made.count(part) for part in parts} == parts


def test_every_page_has_its_place_in_the_order_and_nothing_comes_from_other_hosts():
    config = yaml.safe_load((CHECKOUT / "mkdocs.yml").read_text())
    assert config["theme"]["font"] is False
    listed = str(config["nav"])
    assert [path.name for path in Path(CHECKOUT / "docs").glob("*.md") if path.name not in listed] == []


def test_the_list_of_examples_has_each_with_its_comment(site: ModuleType):
    text = site.examples(CHECKOUT / "examples")
    for path in (CHECKOUT / "examples").glob("*.yaml"):
        assert f"- [{path.name}](examples/{path.name}): " in text
