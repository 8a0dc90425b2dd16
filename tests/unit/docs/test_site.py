"""What the site makes of the pages: links, and Markdown as Python-Markdown wants it."""

import contextlib
import importlib.util
import re
from types import ModuleType, SimpleNamespace

import markdown
import pytest
from markdown.extensions.toc import slugify
from mkdocs.exceptions import PluginError
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


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('<script src="https://cdn.example.com/a.js"></script>', True),
        ('<link rel="stylesheet" href="https://fonts.example.com/css">', True),
        ('<img alt="" src="http://example.com/a.png">', True),
        ('<a href="https://example.com">text</a> <script src="assets/a.js"></script>', False),
    ],
)
def test_a_page_that_loads_something_from_another_host_fails_the_build(site: ModuleType, text: str, *, refused: bool):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="a.md"))
    with pytest.raises(PluginError, match=r"a\.md loads") if refused else contextlib.nullcontext():
        assert site.on_post_page(text, page=page, config=None) == text


NAMED = re.compile(r"docs/([a-z-]+\.md)(?:#([a-z0-9-]+))?")
SOURCES = ("operator", "plugin_agent", "cli", "charts", "crds", "examples", "tests/cluster")


def test_pages_and_headings_that_programs_name_exist():
    found = {
        (path.relative_to(CHECKOUT), page, anchor)
        for folder in SOURCES
        for path in (CHECKOUT / folder).rglob("*")
        if path.suffix in (".py", ".yaml", ".txt", ".tpl", ".md")
        for page, anchor in NAMED.findall(path.read_text(encoding="utf-8"))
    }
    assert len(found) > 15
    assert [each for each in found if not named(each[1], each[2])] == []


def named(page: str, anchor: str) -> bool:
    path = CHECKOUT / "docs" / page
    if not path.exists() or not anchor:
        return path.exists()
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return anchor in {slugify(heading.replace("`", ""), "-") for heading in headings}


def test_the_list_of_examples_has_each_with_its_comment(site: ModuleType):
    text = site.examples(CHECKOUT / "examples")
    for path in (CHECKOUT / "examples").glob("*.yaml"):
        assert f"- [{path.name}](examples/{path.name}): " in text
