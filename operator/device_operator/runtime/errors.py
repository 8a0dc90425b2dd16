"""The operator's exceptions, one tree.

OperatorError
├── UsageError           the command line, its environment or a file given to it: exit status 2
├── FatalError           the process ends once, with this message; the Deployment starts it again
│   ├── LeaseLostError   another process may lead now
│   └── PermissionMissingError  a list or watch is forbidden: nothing works without it
├── InvalidSpecError     a DevicePluginConfig that cannot be served: the reasons are Accepted's message
├── ForeignOwnerError    an object under a name of ours belongs to somebody else; it is left alone
└── ApiError             the API server's answer (cluster.client)
"""


class OperatorError(Exception):
    """Base class; never raised itself. The message is one line for an admin."""


class UsageError(OperatorError):
    """What was given on the command line cannot be used."""


class FatalError(OperatorError):
    """Going on would be wrong or useless."""


class LeaseLostError(FatalError):
    """The Lease could not be renewed in time, or somebody else has it."""


class PermissionMissingError(FatalError):
    """The ServiceAccount may not list or watch what every pass needs."""


class InvalidSpecError(OperatorError):
    """`problems`: one line each, with the field's path, what is wrong and how to mend it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ForeignOwnerError(OperatorError):
    """The message names the object and its owner."""
