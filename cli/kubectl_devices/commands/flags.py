"""Flags that several commands have."""

import argparse
import re
from typing import Final

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}
_MOST_HOURS: Final = 100_000
"""About eleven years. A time that is much longer ago is no date in Python."""


def seconds(text: str) -> float:
    """A time as kubectl's flags have it: 30s, 5m, 1h, 1m30s; a number alone is seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(s|m|h|)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 30s, 5m or 1h")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total <= 0:
        raise argparse.ArgumentTypeError("the time must be above 0")
    if total > _MOST_HOURS * _UNITS["h"]:
        raise argparse.ArgumentTypeError(f"the time must be at most {_MOST_HOURS}h")
    return total


def output(parser: argparse.ArgumentParser, *forms: str) -> None:
    parser.add_argument("-o", "--output", choices=forms, default="", metavar="FORM", help=f"one of: {', '.join(forms)}")


def device(parser: argparse.ArgumentParser, *, many: bool = True) -> None:
    """NODE and DEVICE, as `list` shows them."""
    parser.add_argument("node", metavar="NODE", help="the node's name")
    parser.add_argument(
        "device",
        metavar="DEVICE",
        nargs="*" if many else None,
        help="an id as `kubectl devices list` shows it, a UUID, a PCI address or a path below /dev",
    )
    parser.add_argument(
        "--config", default="", metavar="NAME", help="the DevicePluginConfig, if several have the device"
    )
