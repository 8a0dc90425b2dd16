"""What drivers report of their devices: looks at all of them, and faults of one. Pure values; no vendor is named here.

A driver library names each fault with a code, and has a rule that says what a code means. So the agent keeps the health
of all libraries' devices in the same way.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from device_agent.contract.document import Clears, HealthRules
from device_agent.contract.values import dataclass

NO_ACTION: Final = "None"
"""The value of `Check.action` if the driver asks for no action."""


class Answer(StrEnum):
    """The result of a check. Lost means Bad at once, without a threshold: the device cannot answer any more."""

    GOOD = "Good"
    BAD = "Bad"
    LOST = "Lost"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One look at one device. `cause` is CamelCase, `message` for an admin; of Unknown: why there is no answer.

    `action`: the action that the driver asks for (NO_ACTION: none), '' if the driver cannot name actions.
    `fresh` False: the answer is that of an earlier look, and has been counted.
    """

    answer: Answer
    cause: str = ""
    message: str = ""
    action: str = ""
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class DriverLoad:
    """Identifies one load of the driver. `module`: changes with each load, also while no agent runs; '' if unknown.

    `epoch`: counts the loads that this process has seen; 0 if unknown, as after a restart.
    """

    module: str = ""
    epoch: int = 0

    def replaced_by(self, other: "DriverLoad") -> bool:
        """Whether the other load came after this one, as far as known."""
        if self.module and other.module:
            return self.module != other.module
        return 0 < self.epoch < other.epoch


UNKNOWN_LOAD: Final = DriverLoad()


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all physical devices of a source; `checks` by device.

    `unanswered`: why no device could be checked, or ''; `cause`: the reason code for that, in CamelCase.
    """

    checks: Mapping[str, Check]
    source: str
    load: DriverLoad = UNKNOWN_LOAD
    unanswered: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """A source's name for a fault: a label and a number, as in `XID 79`."""

    label: str
    number: str

    def __str__(self) -> str:
        return f"{self.label} {self.number}"


@dataclass(frozen=True, slots=True)
class Fault:
    """An event of a physical device of a source, or of a part of it: `part` is a path, device first (GPU-5f…/3/0).

    `load`: the load of the driver that announced it.
    """

    part: str
    code: Code
    source: str
    load: DriverLoad = UNKNOWN_LOAD


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a fault means under an entry's rules. `cause` is the reason, in CamelCase.

    `meaning`: in a few words, for a message that tells of several faults; `message`: all of it, with advice.
    """

    cause: str
    meaning: str
    message: str
    clears: Clears


FaultRule = Callable[[Code, HealthRules], Ruling | None]
"""What a code means under an entry's rules. None: it is no failure, or it is no code of the rule's source."""
