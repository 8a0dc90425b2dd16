"""The licence: one text, and one name for it wherever the project is packed."""

import hashlib
import tomllib

import yaml
from localcluster import places

NAME = "Apache-2.0"  # its SPDX identifier
TEXT_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""Of the text as the Apache Software Foundation publishes it."""


def test_the_text_is_the_published_one() -> None:
    assert hashlib.sha256((places.CHECKOUT / "LICENSE").read_bytes()).hexdigest() == TEXT_SHA256


def test_package_and_chart_name_the_licence() -> None:
    project = tomllib.loads((places.CHECKOUT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((places.CHECKOUT / "charts" / "device-operator" / "Chart.yaml").read_text())
    assert (project["license"], project["license-files"]) == (NAME, ["LICENSE"])
    assert chart["annotations"]["artifacthub.io/license"] == NAME
