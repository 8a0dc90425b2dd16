"""The chart as Helm renders it: no cluster, but the real helm program."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from localcluster import binaries, places

CHART = places.CHECKOUT / "charts" / "device-operator"


@dataclass(frozen=True, slots=True)
class Chart:
    """Renders and lints the chart; `path` is its folder."""

    helm: Path
    path: Path

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.helm, *arguments, "--values", "-"],
            input=json.dumps(values or {}),  # JSON: YAML 1.1 and 1.2 differ in words like `y`
            capture_output=True,
            text=True,
            check=False,
        )

    def template(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        release: str = "do",
        namespace: str = "devices",
        kubernetes: str = "1.36",
    ) -> list[dict[str, Any]]:
        """All objects that an installation with these values would create."""
        done = self.run(
            "template", release, str(self.path), "-n", namespace, "--kube-version", kubernetes, values=values
        )
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if document]

    def refusal(self, values: Mapping[str, Any]) -> str:
        """What Helm says about values that it must not take."""
        done = self.run("template", "do", str(self.path), values=values)
        assert done.returncode != 0, f"taken: {values}"
        return done.stderr


@pytest.fixture(scope="session")
def chart() -> Chart:
    binaries.build(["helm"])
    return Chart(helm=binaries.path("helm"), path=CHART)


@pytest.fixture(scope="session")
def objects(chart: Chart) -> list[dict[str, Any]]:
    """What the default values give."""
    return chart.template()
