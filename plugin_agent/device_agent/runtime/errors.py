"""The errors that the agent's core raises on purpose.

AgentError
+-- AllocationRefused       an Allocate is refused; the pod's events show the text
    +-- WrongNumber         a container may not have that many devices
    +-- UnknownDevice       no such id under that resource
    +-- UnavailableDevice   the id is known but cannot be given out now
"""


class AgentError(Exception):
    """Base class. The text is one line for an admin."""


class AllocationRefused(AgentError):  # noqa: N818 - a refusal is an answer, not a fault of the agent
    """An Allocate that cannot be granted. The kubelet rejects the pod for good and shows the text.

    `code`: the name of the gRPC status to answer with. `reason`: one word, for metrics.
    """

    code = "INVALID_ARGUMENT"
    reason = ""


class WrongNumber(AllocationRefused):
    reason = "WrongNumber"


class UnknownDevice(AllocationRefused):
    reason = "UnknownId"

    def __init__(self, resource: str, device_id: str) -> None:
        super().__init__(f"{resource}: unknown device {device_id}")
        self.device_id = device_id


class UnavailableDevice(AllocationRefused):
    code = "FAILED_PRECONDITION"

    def __init__(self, resource: str, device_id: str, *, reason: str, message: str) -> None:
        super().__init__(f"{resource}: device {device_id} cannot be given out: {reason}, {message}")
        self.device_id = device_id
        self.reason = reason
