"""What a driver may tell of a GPU: the answers to a look at it, and errors that it announces."""

from device_agent.health.news import Answer, Check

GOOD = Check(Answer.GOOD)
NONE = Check(Answer.GOOD, action="None")
"""Good, and the driver says that nothing is to be done."""
ASKS = Check(Answer.BAD, "ResetRequired", "the GPU has to be reset", action="Reset")
BAD = Check(Answer.BAD, "RowRemapFailed", "a row could not be remapped")
LOST = Check(Answer.LOST, "GpuLost", "the GPU is lost")
UNKNOWN = Check(Answer.UNKNOWN, message="GPU-0 does not answer")

RESET_XID, QUIET_XID, HARMLESS_XID = 79, 74, 13
