"""The errors that the agent's core raises on purpose.

AgentError
+-- AllocationRefused       the answer to an Allocate is no; the text reaches the pod's events as it is
    +-- UnknownDevice       no such id under that resource
    +-- UnavailableDevice   the id is known and must not be handed out now
"""


class AgentError(Exception):
    """Base of the tree; its text is one line for an admin."""


class AllocationRefused(AgentError):  # noqa: N818 - a refusal is an answer, not a fault of the agent
    """An Allocate that cannot be granted. The kubelet rejects the pod for good and shows the text.

    `code`: the name of the gRPC status that says it.
    """

    code = "INVALID_ARGUMENT"


class UnknownDevice(AllocationRefused):
    def __init__(self, resource: str, device_id: str) -> None:
        super().__init__(f"{resource}: unknown device {device_id}")
        self.device_id = device_id


class UnavailableDevice(AllocationRefused):
    code = "FAILED_PRECONDITION"

    def __init__(self, resource: str, device_id: str, *, reason: str, message: str) -> None:
        super().__init__(f"{resource}: device {device_id} cannot be given out: {reason}, {message}")
        self.device_id = device_id
        self.reason = reason
