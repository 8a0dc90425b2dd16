"""The plugin's exceptions, one tree.

CliError                the command ends with this message: exit status 1
├── UsageError          the command line, a file or the kubeconfig: exit status 2
├── ForbiddenError      the user lacks a right; the message has verb and resource
├── NotFoundError       there is no such object, or no such kind
├── ConflictError       the object was changed since it was read, or exists already
├── TooManyError        the API server asks to try again later, as for an eviction that a disruption budget forbids
├── UnreachableError    no answer of the API server
└── RefusedError        any other refusal of the API server
"""


class CliError(Exception):
    """Base class; raised itself when a command cannot do what was asked. The message is one line for an admin."""


class UsageError(CliError):
    """What the user gave cannot be used."""


class ForbiddenError(CliError):
    """`verb` and `resource` in the words of RBAC, such as list and nodes."""

    def __init__(self, verb: str, resource: str, *, namespace: str = "") -> None:
        where = f" in namespace {namespace}" if namespace else ""
        super().__init__(f"you may not {verb} {resource}{where}")
        self.verb = verb
        self.resource = resource
        self.namespace = namespace


class NotFoundError(CliError):
    """The message names what is missing."""


class ConflictError(CliError):
    """Read again and try again."""


class TooManyError(CliError):
    """The message is the server's."""


class UnreachableError(CliError):
    """The message names the server and the cause."""


class RefusedError(CliError):
    """The message is the server's."""
