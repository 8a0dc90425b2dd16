"""All commands, in the order of the help."""

from typing import Final

from kubectl_devices.commands import list_devices
from kubectl_devices.commands.command import Command

COMMANDS: Final[tuple[Command, ...]] = (list_devices.COMMAND,)
