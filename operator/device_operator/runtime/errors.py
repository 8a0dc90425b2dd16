"""The operator's exceptions, one tree.

OperatorError
├── UsageError           the command line, its environment or a file given to it: exit status 2
├── FatalError           the process ends with this message; the Deployment starts it again
│   ├── LeaseLostError   another process may lead now
│   └── PermissionMissingError  a list or watch is forbidden: the operator cannot work without it
├── InvalidSpecError     the spec of a DevicePluginConfig has mistakes; they become the message of Accepted
├── ForeignOwnerError    an object with a name that we need belongs to another owner; it is not changed
└── ApiError             the API server's answer (cluster.client)
"""


class OperatorError(Exception):
    """Base class, never raised itself. The message is one line for an admin."""


class UsageError(OperatorError):
    """The command line, its environment or a file given to it is wrong."""


class FatalError(OperatorError):
    """The process cannot continue."""


class LeaseLostError(FatalError):
    """The Lease could not be renewed in time, or another process has it."""


class PermissionMissingError(FatalError):
    """The ServiceAccount may not list or watch what every pass needs."""


class InvalidSpecError(OperatorError):
    """`problems`: one line each: path of the field, what is wrong, what to do."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ForeignOwnerError(OperatorError):
    """The message names the object and its owner."""
