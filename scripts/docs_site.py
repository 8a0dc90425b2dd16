"""What mkdocs is told about this project's pages (a hook of mkdocs.yml).

The pages are written for people who read the files, and for a Markdown that knows lists without a blank line before
them. On the way to the site three things change. Pages outside of docs/ are added. Links to files outside of docs/ lead
to these pages, or to a copy of the file. Lists and tables get the blank lines and indents that Python-Markdown wants.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "charts/device-operator/README.md": "chart.md",
    "examples": "examples.md",
}
"""Pages outside of docs/, and their names in the site."""
_FOREIGN = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["'](?!["'])(https?://[^"']+)""")
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"`{3,}|~{3,}")
_ITEM = re.compile(r"([-*+]|\d+[.)]) ")
_CODE = re.compile(r"`[^`]*`")


def on_files(files: Files, *, config: Any) -> Files:
    for source, target in PAGES.items():
        path = ROOT / source
        text = path.read_text(encoding="utf-8") if path.is_file() else examples(path)
        files.append(File.generated(config, target, content=text))
    for path in (ROOT / "LICENSE", ROOT / "charts/device-operator/values.yaml", *ROOT.glob("examples/*.yaml")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 mkdocs names them
    here = page.file.src_uri
    source = next((path for path, target in PAGES.items() if target == here), f"docs/{here}")
    return spaced(linked(markdown, (ROOT / source).parent))


def on_post_page(output: str, *, page: Any, config: Any) -> str:  # noqa: ARG001 mkdocs names them
    """Refuses a page that loads something from another host: clusters without a network have docs too."""
    if found := _FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads {found[1]}: keep a copy in the site")
    return output


def examples(folder: Path) -> str:
    """A list of the example files, each with its first comment."""
    lines = ["# Examples", ""]
    for path in sorted(folder.glob("*.yaml")):
        comment = re.match(r"(?:# .*\n)+", path.read_text(encoding="utf-8"))
        said = " ".join(line.removeprefix("# ") for line in comment[0].splitlines()) if comment else ""
        lines.append(f"- [{path.name}](examples/{path.name}): {said}")
    return "\n".join([*lines, ""])


def linked(text: str, folder: Path) -> str:
    """The text with its links as the site has them. `folder` is the one of the page's source."""

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve().relative_to(ROOT).as_posix()
        return f"]({PAGES.get(target, target.removeprefix('docs/'))}{link[2] or ''})"

    return _LINK.sub(replaced, text)


def spaced(text: str) -> str:
    """The text as Python-Markdown wants it: a blank line before lists and tables, indents of four instead of two."""
    return "\n".join(_lines(text.split("\n")))


@dataclass
class _Place:
    """Where a line stands: the last line outside of code, and whether a list goes on."""

    before: str = ""
    in_list: bool = False

    def needs_blank(self, bare: str) -> bool:
        if bare.startswith("|"):
            return self.before != "" and not self.before.startswith("|")
        return bool(_ITEM.match(bare)) and self.before != "" and not self.in_list

    def move(self, bare: str, *, indented: bool) -> None:
        if _ITEM.match(bare):
            self.in_list = True
        elif bare.startswith("#") or (bare and not self.before and not indented):
            self.in_list = False
        self.before = bare


def _lines(lines: list[str]) -> Iterator[str]:
    place = _Place()
    fence = indent = ""
    for line in lines:
        bare = line.strip()
        if fence:
            yield indent + line
            fence = "" if bare == fence else fence
            continue
        indent = line[: len(line) - len(line.lstrip(" "))]
        if opening := _FENCE.match(bare):
            fence = opening[0]
        elif place.needs_blank(bare):
            yield ""
        place.move(bare, indented=bool(indent))
        if bare.startswith("|"):
            line = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), line)  # noqa: PLW2901
        yield indent + line
