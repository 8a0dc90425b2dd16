"""XID errors of the NVIDIA driver that make a GPU Unhealthy: their meaning, advice, and what ends the failure.

The driver announces every XID as a critical error, even an error that a buggy program caused. The table has the XIDs
for which NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog") asks to
reset the GPU or to restart the machine. For other XIDs the GPU is fine, so they have no row.

Two kinds are Quiet. For 74 and 144-150 the catalogue decides by further bits, which NVML does not give. 109 may also
be caused by a program. If one of them needs a reset, the driver's recovery action says so, and the looks read it.
"""

from typing import Final

from device_agent.contract.document import Clears, HealthRules
from device_agent.contract.values import dataclass
from device_agent.health.news import Code, Ruling


@dataclass(frozen=True, slots=True)
class XidRow:
    """One XID. `meaning` and `advice` are texts for an admin."""

    xid: int
    meaning: str
    advice: str
    clears: Clears = Clears.RESET


_LABEL: Final = "XID"
_RESET: Final = "stop the pods that use the GPU, and reset it"
_SUPPORT: Final = f"{_RESET}; if it happens again, have the hardware checked"
_DRIVER: Final = f"{_RESET}; if it happens again, update the driver"
_LINK: Final = "if it happens again, reset the GPU and have its NVLink connections checked"

ROWS: Final = (
    XidRow(46, "the GPU stopped processing", _SUPPORT),
    XidRow(48, "a memory error that ECC could not correct", _SUPPORT),
    XidRow(62, "the GPU's power management controller halted", _SUPPORT),
    XidRow(64, "a faulty memory row or page could not be retired", "reset the GPU now; on an A100 reboot the node"),
    XidRow(74, "an error on an NVLink connection", _LINK, Clears.QUIET),
    XidRow(79, "the GPU has fallen off the PCIe bus", "reboot the node; check the GPU's seat, power and cooling"),
    XidRow(95, "a memory error that was not contained to one program", f"{_RESET}, or reboot the node"),
    XidRow(
        109,
        "the GPU did not switch between programs in time",
        "end the program that hangs; if it happens again, reset the GPU",
        Clears.QUIET,
    ),
    XidRow(110, "a fault of the GPU's security engine", _DRIVER),
    XidRow(119, "the GPU's system processor (GSP) did not answer the driver", _DRIVER),
    XidRow(120, "the firmware of the GPU's system processor (GSP) failed", _DRIVER),
    XidRow(136, "an NVLink connection could not be trained", f"{_RESET}; if it happens again, check the links"),
    XidRow(140, "uncorrectable memory errors came faster than pages could be retired", _SUPPORT),
    XidRow(143, "the GPU could not be initialised", _SUPPORT),
    *(
        XidRow(xid, f"an error in the {unit} of an NVLink connection", _LINK, Clears.QUIET)
        for xid, unit in (
            (144, "SAW"), (145, "RLW"), (146, "TLW"), (147, "TREX"), (148, "NVLPW"), (149, "NETIR"), (150, "MSE"),
        )
    ),
    XidRow(151, "the GPU's encryption keys could not be rotated", "restart the virtual machine or the node"),
    XidRow(155, "an NVLink error that the driver treats as fatal", _SUPPORT),
    XidRow(156, "a faulty unit of the GPU is retired at the next reset", _RESET),
    XidRow(158, "the GPU did not answer the driver in time and cannot go on", _SUPPORT),
)  # fmt: skip

_BY_XID: Final = {row.xid: row for row in ROWS}

_ENDS: Final = {
    Clears.QUIET: "ends by itself when the GPU's state stays good and the error does not happen again",
    Clears.RESET: (
        "ends when the driver no longer asks for a recovery action, or after a reload of the driver, a reboot, "
        "or an acknowledgement (docs/health.md)"
    ),
}


def code(xid: int) -> Code:
    """The code of an XID."""
    return Code(label=_LABEL, number=str(xid))


def rule(code: Code, rules: HealthRules) -> Ruling | None:
    """The ruling on an XID under an entry's rules. None: it is no failure, or the code is not an XID."""
    if code.label != _LABEL:
        return None
    xid = int(code.number)
    if xid in rules.ignore_xids:
        return None
    row = _BY_XID.get(xid)
    given = next((r for r in rules.xids if r.xid == xid), None)
    if row is None and given is None:
        return None
    clears = given.clears if given else row.clears if row else Clears.RESET
    meaning = row.meaning if row else "named in health.xids"
    advice = row.advice if row else "see NVIDIA's XID catalogue"
    return Ruling(
        cause=f"Xid{xid}",
        meaning=meaning,
        message=f"{code}: {meaning}; {advice}. It {_ENDS[clears]}",
        clears=clears,
    )
