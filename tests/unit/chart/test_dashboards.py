"""The dashboards: each query is answered by Prometheus's engine from scrapes of the real registries."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from localcluster import places
from unit.chart import story
from unit.chart.scrapes import agent_labels, answers, samples

FOLDER = places.CHECKOUT / "charts" / "device-operator" / "dashboards"
NAMES = ("device", "fleet", "node")
METRIC = re.compile(r"\bdevice_(?:agent|operator)_\w+|\bprocess_\w+")
ON = {"metrics": {"grafanaDashboards": {"enabled": True}, "podMonitor": {"enabled": True}}}
VARIABLES = {"$config": ".*", "$node": ".*", "$device": ".*", "$__rate_interval": "5m"}


def board(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def targets() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(dashboard: title of the panel, the panel, its target)"""
    for name in NAMES:
        for panel in board(name)["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", panel, target


def filled(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


@pytest.fixture(scope="module")
def scrapes() -> list[dict[str, Any]]:
    return list(story.recorded())


@pytest.fixture(scope="module")
def exported(scrapes) -> set[str]:
    """The names of all series that the programs export in the story."""
    last = [s for s in scrapes if s["at"] in {scrapes[0]["at"], scrapes[-1]["at"]}]
    return {series.partition("{")[0] for s in last for series in samples(s["labels"], s["text"])}


def test_there_are_three_dashboards_and_each_is_delivered(chart):
    assert sorted(path.stem for path in FOLDER.iterdir()) == list(NAMES)
    maps = [o for o in chart.template(ON) if o["kind"] == "ConfigMap"]
    assert {name: json.loads(text) for o in maps for name, text in o["data"].items()} == {
        f"device-operator-{name}.json": board(name) for name in NAMES
    }
    assert all(o["metadata"]["labels"]["grafana_dashboard"] == "1" for o in maps)


def test_no_data_source_is_written_down():
    for name in NAMES:
        text = json.dumps(board(name))
        assert set(re.findall(r'"type": "prometheus", "uid": "([^"]*)"', text)) == {"${datasource}"}
        assert board(name)["templating"]["list"][0]["type"] == "datasource"


def test_panels_do_not_overlap_and_are_explained():
    for name in NAMES:
        panels = board(name)["panels"]
        cells = [
            (x, y)
            for p in panels
            for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
            for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])
        ]
        assert len(cells) == len(set(cells)), name
        assert max(x for x, _ in cells) < 24
        assert all(p["description"] and p["title"] for p in panels)
        assert len({p["id"] for p in panels}) == len(panels)


def test_each_query_has_an_answer_whose_labels_the_panel_shows(scrapes):
    found = list(targets())
    end = scrapes[-1]["at"]
    times = {"start": scrapes[0]["at"], "end": end, "step": 60}
    asked = [{"expr": filled(target["expr"]), **times} for _, _, target in found]
    for (where, panel, target), answer in zip(found, answers(scrapes, asked), strict=True):
        assert "error" not in answer, where
        assert answer["series"], f"{where}: no series"
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        for one in answer["series"]:
            assert shown <= set(one["labels"]), where
        if panel["type"] == "table":
            [transform] = panel["transformations"]
            columns = set(transform["options"]["indexByName"])
            assert columns == {label for one in answer["series"] for label in one["labels"]}, where


def test_a_query_for_what_nobody_exports_has_no_answer(scrapes):
    end = scrapes[-1]["at"]
    wrong = ("device_agent_devices{nod='gpu-1'}", "device_agent_no_such_thing", "sum by (")
    found = answers(scrapes[:10], [{"expr": query, "start": end, "end": end, "step": 60} for query in wrong])
    assert [one.get("series") for one in found] == [[], [], None]


def test_the_queries_of_the_guide_have_answers(scrapes):
    page = (places.CHECKOUT / "docs" / "monitoring.md").read_text()
    queries = re.findall(r"^\| [^|]+\? \| `(.+)` \|$", page, re.MULTILINE)
    assert len(queries) > 6
    times = {"start": scrapes[0]["at"], "end": scrapes[-1]["at"], "step": 60}
    found = answers(scrapes, [{"expr": query, **times} for query in queries])
    empty = [query for query, one in zip(queries, found, strict=True) if not one["series"] or "error" in one]
    # in the story no rollout goes on, and no GPU is idle while a pod holds it
    assert [query for query in empty if "Progressing" not in query and "< 5" not in query] == []
    assert not any("error" in one for one in found)


def test_variables_take_their_values_from_labels_that_exist(scrapes):
    last = [s for s in scrapes if s["at"] == scrapes[-1]["at"]]
    series = [one for s in last for one in samples(s["labels"], s["text"])]
    for name in NAMES:
        for variable in board(name)["templating"]["list"][1:]:
            asked = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
            assert asked is not None
            assert any(one.startswith(f"{asked[1]}{{") and f"{asked[2]}=" in one for one in series), variable["name"]


def test_the_monitor_adds_the_labels_that_the_queries_use(chart):
    [monitor] = [o for o in chart.template(ON, namespace="devices") if o["kind"] == "PodMonitor"]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    added = {one["targetLabel"] for one in endpoint["relabelings"]}
    assert {"config", "node", "pool"} == added
    assert added < set(agent_labels("a"))


def test_the_pictures_show_the_dashboards_of_today(scrapes):
    loaded = importlib.util.spec_from_file_location("dashboard_images", places.CHECKOUT / "scripts/dashboard_images.py")
    assert loaded is not None
    assert loaded.loader is not None
    images = importlib.util.module_from_spec(loaded)
    sys.modules[loaded.name] = images  # its dataclasses look themselves up
    loaded.loader.exec_module(images)
    for name, chosen in images.BOARDS.items():
        kept = (places.CHECKOUT / "docs" / "images" / f"dashboard-{name}.svg").read_text()
        assert images.drawing(name, chosen, scrapes) == kept, "run scripts/dashboard_images.py"
    assert images.drawing("node", {"node": "gpu-2"}, scrapes) != images.drawing("node", {"node": "gpu-1"}, scrapes)


def words(path: Path) -> set[str]:
    return set(METRIC.findall(path.read_text()))


def test_every_metric_in_alerts_dashboards_and_docs_is_exported(exported):
    docs = places.CHECKOUT / "docs"
    files = [*FOLDER.iterdir(), FOLDER.parent / "files" / "alerts.yaml", *docs.glob("*.md")]
    named = {word for path in files for word in words(path) if not word.endswith("_")}
    kinds = {name.removesuffix("_bucket").removesuffix("_total") for name in exported} | exported
    assert named - kinds == set()
    assert "device_operator_node_failed" in named


def test_alerts_and_dashboards_agree_on_the_heat_of_a_gpu():
    rules = yaml.safe_load((FOLDER.parent / "files" / "alerts.yaml").read_text())
    [hot] = [r for g in rules["groups"] for r in g["rules"] if r["alert"] == "DeviceGpuHot"]
    limit = float(hot["expr"].rpartition(">")[2])
    lines = [p for p in board("device")["panels"] if p["title"] in ("Temperature", "Hottest")]
    assert len(lines) == 2
    assert all(p["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"] == limit for p in lines)
