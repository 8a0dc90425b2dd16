"""`device-agent scan`: what an agent with this configuration would find and offer on a node, or in a captured tree."""

import asyncio
import json
import logging
import math
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from device_agent.contract import attributes, check
from device_agent.contract.document import ContractError, Document, parse
from device_agent.contract.names import ENV_DRIVER_ACCESS, MAX_DOCUMENT_BYTES
from device_agent.discovery.driver import Opener
from device_agent.discovery.scanner import NO_DRIVERS, Scanner
from device_agent.discovery.source import Roots
from device_agent.nvml.access import parse as parse_access
from device_agent.nvml.model import NvmlView
from device_agent.nvml.source import opener
from device_agent.runtime.settings import Settings
from device_agent.select.description import described
from device_agent.select.selection import select

EXIT_CONFIG = 2
_HINT = (
    "scan takes config.json of an agent's ConfigMap, as `device-operator render` prints it; "
    "for a DevicePluginConfig use: kubectl devices explain -f FILE --tree DIR"
)


def run(config_path: Path, host_root: Path, *, driver_root: Path = Path("/")) -> int:
    """Prints the scan as JSON on stdout. Returns 2, with lines on stderr, if the configuration or root is unusable."""
    try:
        raw = _read(config_path)
    except (OSError, ContractError) as error:
        print(f"{config_path}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return EXIT_CONFIG
    try:
        document = parse(raw)
    except ContractError as error:
        print(f"{config_path}: {error}; {_HINT}", file=sys.stderr)
        return EXIT_CONFIG
    if problems := check.problems(document, path="resources"):
        for problem in problems:
            print(f"{config_path}: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    roots = Roots.below(host_root)
    if not roots.sys.is_dir() and not roots.dev.is_dir():
        print(f"--host-root: there is neither sys nor dev in {host_root}", file=sys.stderr)
        return EXIT_CONFIG
    view = _ask_nvml(document, roots, driver_root)
    drivers = {attributes.NVML: opener(view, document)} if view else {}
    # ASCII alone: a file name may not be text, and the terminal may not use UTF-8
    print(json.dumps(scan_json(document, roots, drivers=drivers, errors=_nvml_errors(view)), indent=1))
    return 0


def _read(path: Path) -> bytes:
    """The file's bytes. A file that may never end, such as a FIFO or /dev/zero, is not opened.

    Raises:
        OSError: it cannot be read.
        ContractError: it is not a regular file, or longer than a configuration may be.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ContractError("it is not a regular file")
    with path.open("rb") as file:
        raw = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise ContractError(f"it is longer than {MAX_DOCUMENT_BYTES:,} bytes")
    return raw


def _ask_nvml(document: Document, roots: Roots, driver_root: Path) -> NvmlView | None:
    """One look, if the document asks for NVIDIA devices."""
    if not any(entry.nvml for resource in document.resources for entry in resource.devices):
        return None
    logging.getLogger("device_agent").addHandler(logging.NullHandler())  # the answer has what it would log
    from device_agent.nvml.session import NvmlSession  # noqa: PLC0415 a scan loads what it needs

    async def ask() -> NvmlView:
        # nothing else waits, so a driver may start slowly
        settings = replace(Settings(), nvml_deadline=Settings().scan_deadline, nvml_slow=math.inf)
        access = parse_access(os.environ.get(ENV_DRIVER_ACCESS, ""))
        session = NvmlSession(driver_root=driver_root, roots=roots, settings=settings, events=False, access=access)
        view = await session.look()
        await session.close()
        return view

    return asyncio.run(ask())


def scan_json(
    document: Document, roots: Roots, *, drivers: Mapping[str, Opener] = NO_DRIVERS, errors: Sequence[str] = ()
) -> dict[str, Any]:
    """One scan and its selection as plain JSON values: devices, excluded, health, refused, notes, errors.

    `drivers`: sources made from the answers of driver libraries, by kind. `errors`: what these libraries could not
    tell. The `notes` say why an entry finds nothing.
    """
    scanner = Scanner(roots)
    findings = scanner.scan(document, drivers=drivers)
    selection = select(document, findings, dev=scanner.device_nodes())
    return described(document, selection, errors=(*findings.errors, *errors))


def _nvml_errors(view: NvmlView | None) -> tuple[str, ...]:
    if view is None:
        return ()
    return (view.unavailable, *view.errors) if view.unavailable else view.errors
