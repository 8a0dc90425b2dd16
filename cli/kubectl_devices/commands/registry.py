"""All commands, in the order of the help."""

from typing import Final

from kubectl_devices.commands import (
    acknowledge,
    bundle,
    check,
    completion,
    cordon,
    drain,
    explain,
    hardware,
    history,
    list_devices,
    top,
    who,
)
from kubectl_devices.commands.command import Command

COMMANDS: Final[tuple[Command, ...]] = (
    list_devices.COMMAND,
    who.COMMAND,
    history.COMMAND,
    top.COMMAND,
    cordon.CORDON,
    cordon.UNCORDON,
    drain.COMMAND,
    check.COMMAND,
    acknowledge.COMMAND,
    explain.COMMAND,
    hardware.COMMAND,
    bundle.COMMAND,
    completion.COMMAND,
)
