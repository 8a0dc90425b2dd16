#!/usr/bin/env python3
"""Draws the chart's dashboards as SVG into docs/images/, with the data of tests/unit/chart/story.py.

scripts/dashboard_images.py [--check]     --check: fail if a picture is not up to date

Prometheus's engine answers each query of the dashboards' JSON. The drawing shows what a panel shows, in a plain
form. It is no screenshot of Grafana.
"""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("operator", "plugin_agent", "cli", "tests/cluster", "tests")]

from unit.chart import story  # noqa: E402
from unit.chart.scrapes import answers  # noqa: E402

BOARDS: Final = {
    "fleet": {"config": "All"},
    "node": {"node": "gpu-1"},
    "device": {"node": "All", "device": "All"},
}
"""The dashboards, and the value of each variable."""
CELL_W, CELL_H, GAP, HEAD = 50, 34, 8, 56
FONT: Final = 'font-family="Inter, Helvetica, Arial, sans-serif"'
WIDTH: Final = 24 * CELL_W + GAP
COLOURS: Final = {"green": "#3a8a4d", "red": "#c4162a", "orange": "#d9730d", "blue": "#3871dc"}
LINES: Final = (
    "#73bf69",
    "#f2cc0c",
    "#5794f2",
    "#ff780a",
    "#f2495c",
    "#b877d9",
    "#37872d",
    "#8ab8ff",
    "#fade2a",
    "#c0d8ff",
)
UNITS: Final = {"percent": " %", "celsius": " °C", "watt": " W", "s": " s"}
BYTES: Final = (("GiB", 1 << 30), ("MiB", 1 << 20))


@dataclass(frozen=True, slots=True)
class Box:
    """The room of a panel, in pixels."""

    x: float
    y: float
    w: float
    h: float


def text(
    x: float, y: float, said: str, *, size: int = 12, fill: str = "#ccccdc", anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f"<text {place}{weight}>{escape(said)}</text>"


def rect(box: Box, fill: str, stroke: str = "none") -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}"'
    return f'<rect {place} rx="3" fill="{fill}" stroke="{stroke}"/>'


def level(plot: Box, y: float, stroke: str = "#2c3235", dashes: str = "") -> str:
    """A line across the plot."""
    more = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{plot.x:.1f}" x2="{plot.x + plot.w:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{stroke}"{more}/>'


def number(value: float, unit: str) -> str:
    """The value as Grafana writes it, more or less."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "bytes":
        name, size = next((b for b in BYTES if value >= b[1]), ("B", 1))
        return f"{value / size:.3g} {name}"
    if unit == "s" and 0 < value < 1:
        return f"{1000 * value:.3g} ms"
    shown = f"{value:.0f}" if value == int(value) else f"{value:.4g}"
    return shown + UNITS.get(unit, "")


def colour(value: float, thresholds: Mapping[str, Any]) -> str:
    steps = [s["color"] for s in thresholds["steps"] if s["value"] is None or value >= s["value"]]
    return COLOURS[steps[-1]]


def filled(query: str, chosen: Mapping[str, str]) -> str:
    for name, value in chosen.items():
        query = query.replace(f"${name}", ".*" if value == "All" else value)
    return query.replace("$__rate_interval", "5m")


def legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), target["legendFormat"])


def stat(panel: Mapping[str, Any], found: Sequence[Any], box: Box) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    value = next(v for v in reversed(found[0]["series"][0]["values"]) if v is not None)
    shown = number(value, defaults["unit"])
    back = rect(box, colour(value, defaults["thresholds"]))
    big = text(box.x + box.w / 2, box.y + box.h / 2 + 24, shown, size=36, fill="#ffffff", anchor="middle", bold=True)
    return back + text(box.x + 8, box.y + 20, panel["title"], fill="#ffffff", bold=True) + big


def table(panel: Mapping[str, Any], found: Sequence[Any], box: Box) -> str:
    options = panel["transformations"][0]["options"]
    value = options["renameByName"].get("Value")
    columns = [*options["indexByName"], *([value] if value else [])]
    rows = []
    for one in found[0]["series"]:
        if one["values"][-1] is not None:
            cells = [one["labels"].get(name, "") for name in options["indexByName"]]
            rows.append([*cells, *([number(one["values"][-1], "short")] if value else [])])
    widths = [max(len(cell) for cell in column) + 2 for column in zip(columns, *sorted(rows), strict=True)]
    scale = (box.w - 20) / sum(widths)
    at = [box.x + 10 + scale * sum(widths[:i]) for i in range(len(widths))]
    parts = [text(x, box.y + 42, name, fill="#6e9fff", bold=True) for x, name in zip(at, columns, strict=True)]
    room = int((box.h - 60) // 20)
    for line, row in enumerate(sorted(rows)[:room]):
        y = box.y + 63 + 20 * line
        parts.append(level(Box(box.x + 8, y, box.w - 16, 0), y - 15))
        parts += [text(x, y, cell) for x, cell in zip(at, row, strict=True)]
    if len(rows) > room:
        parts.append(text(box.x + box.w - 10, box.y + 20, f"{room} of {len(rows)} rows", anchor="end", fill="#8e8e9e"))
    return "".join(parts)


def lines(panel: Mapping[str, Any], found: Sequence[Any], box: Box) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    named = sorted(
        (legend(target, one["labels"]), one["values"])
        for target, answer in zip(panel["targets"], found, strict=True)
        for one in answer["series"]
    )
    columns = 3 if max(len(name) for name, _ in named) < 27 else 2
    plot = Box(box.x + 62, box.y + 32, box.w - 76, box.h - 58 - 16 * min(-(-len(named) // columns), 3))
    high, low = scale(defaults, [v for _, values in named for v in values if v is not None])
    parts = axes(plot, high, low, defaults["unit"])
    step = defaults["custom"]["lineInterpolation"] == "stepAfter"
    for index, (name, values) in enumerate(named):
        stroke = LINES[index % len(LINES)]
        drawn = path(plot, values, high, low, step=step)
        parts.append(f'<path d="{drawn}" fill="none" stroke="{stroke}" stroke-width="1.6"/>')
        last = 3 * columns - 1
        if index <= last:
            x = box.x + 14 + (index % columns) * (box.w - 20) / columns
            y = plot.y + plot.h + 34 + 16 * (index // columns)
            more = f" and {len(named) - last - 1} more" if index == last and len(named) > last + 1 else ""
            parts.append(rect(Box(x, y - 6, 12, 3), stroke) + text(x + 17, y, name + more, size=10))
    for limit in (s["value"] for s in defaults["thresholds"]["steps"] if s["value"] and low < s["value"] < high):
        parts.append(level(plot, plot.y + plot.h * (high - limit) / (high - low), COLOURS["red"], "6 4"))
    return "".join(parts)


def scale(defaults: Mapping[str, Any], values: Sequence[float]) -> tuple[float, float]:
    """(highest, lowest) of the axis: four equal steps of a round size."""
    limits = [s["value"] for s in defaults["thresholds"]["steps"] if s["value"]]
    shown = limits if "thresholdsStyle" in defaults["custom"] else []
    low = defaults.get("min", min(values))
    if "max" in defaults:
        return defaults["max"], low
    need = (max([*values, *shown]) - low or 1) / 4
    base = 1024 ** int(math.log(need, 1024)) if defaults["unit"] == "bytes" else 1
    power = 10.0 ** math.floor(math.log10(need / base))
    step = next(n * power * base for n in (1, 1.5, 2, 2.5, 3, 4, 5, 10) if n * power * base >= need * 0.9999)
    return low + 4 * step, low


def axes(plot: Box, high: float, low: float, unit: str) -> list[str]:
    parts = []
    for part in range(5):
        y = plot.y + plot.h * part / 4
        parts.append(level(plot, y))
        parts.append(
            text(plot.x - 6, y + 4, number(high - (high - low) * part / 4, unit), size=10, anchor="end", fill="#8e8e9e")
        )
    for minutes in range(0, story.MINUTES + 1, 30):
        x = plot.x + plot.w * minutes / story.MINUTES
        parts.append(
            text(
                x,
                plot.y + plot.h + 15,
                f"{10 + minutes // 60}:{minutes % 60:02}",
                size=10,
                anchor="middle",
                fill="#8e8e9e",
            )
        )
    return parts


def path(plot: Box, values: Sequence[float | None], high: float, low: float, *, step: bool) -> str:
    commands, drawing = [], False
    for index, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        x = plot.x + plot.w * index / (len(values) - 1)
        y = plot.y + plot.h * (high - value) / (high - low)
        commands.append((f"H{x:.1f}V{y:.1f}" if step else f"L{x:.1f} {y:.1f}") if drawing else f"M{x:.1f} {y:.1f}")
        drawing = True
    return "".join(commands)


DRAWN: Final = {"stat": stat, "table": table, "timeseries": lines}


def drawing(name: str, chosen: Mapping[str, str], scrapes: Sequence[Mapping[str, Any]]) -> str:
    board = json.loads((ROOT / "charts" / "device-operator" / "dashboards" / f"{name}.json").read_text())
    times = {"start": scrapes[0]["at"], "end": scrapes[-1]["at"], "step": 60}
    asked = [filled(t["expr"], chosen) for panel in board["panels"] for t in panel["targets"]]
    found = iter(answers(scrapes, [{"expr": query, **times} for query in asked]))
    bottom = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"])
    height = HEAD + bottom * CELL_H + GAP
    head = " · ".join(f"{variable}: {value}" for variable, value in chosen.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#111217"/>',
        text(GAP + 4, 24, board["title"], size=18, bold=True) + text(GAP + 4, 45, head, size=13, fill="#8e8e9e"),
        text(
            WIDTH - GAP - 4,
            24,
            "a drawing of the dashboard's JSON with recorded data",
            size=12,
            anchor="end",
            fill="#8e8e9e",
        ),
    ]
    for panel in board["panels"]:
        grid = panel["gridPos"]
        box = Box(
            GAP + grid["x"] * CELL_W, HEAD + grid["y"] * CELL_H, grid["w"] * CELL_W - GAP, grid["h"] * CELL_H - GAP
        )
        parts.append(rect(box, "#181b1f", "#2c3235"))
        parts.append(text(box.x + 8, box.y + 20, panel["title"], bold=True))
        parts.append(DRAWN[panel["type"]](panel, [next(found) for _ in panel["targets"]], box))
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: Sequence[str]) -> int:
    scrapes, old = list(story.recorded()), []
    for name, chosen in BOARDS.items():
        file, drawn = ROOT / "docs" / "images" / f"dashboard-{name}.svg", drawing(name, chosen, scrapes)
        if "--check" not in arguments:
            file.write_text(drawn)
        elif not file.exists() or file.read_text() != drawn:
            old.append(file.name)
    if old:
        print(f"not up to date: {', '.join(old)}: run scripts/dashboard_images.py")
    return len(old)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
