"""Scans files of this machine: its own /sys and /dev, or a tree that was captured on a node."""

import logging
from pathlib import Path
from typing import Any

import yaml
from device_agent.contract.document import Document
from device_agent.discovery.scanner import Scanner
from device_agent.discovery.source import Roots
from device_agent.select.description import described
from device_agent.select.selection import select

from kubectl_devices import errors


def scan(root: Path, document: Document) -> dict[str, Any]:
    """The selection as `device_agent.select.description` describes it.

    Raises:
        errors.UsageError: there is neither sys nor dev below `root`.
    """
    roots = Roots.below(root)
    if not roots.sys.is_dir() and not roots.dev.is_dir():
        raise errors.UsageError(f"--tree {root}: there is neither sys nor dev in it")
    logging.getLogger("device_agent").addHandler(logging.NullHandler())  # the answer has what it would log
    scanner = Scanner(roots)
    findings = scanner.scan(document)
    return described(document, select(document, findings, dev=scanner.device_nodes()), errors=findings.errors)


def documents(path: str, text: str) -> list[Any]:
    """The documents of a YAML file that was read.

    Raises:
        errors.UsageError: it is not YAML.
    """
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise errors.UsageError(f"{path}: {' '.join(str(error).split()) or 'nested too deeply'}") from error
