"""Turns what NVML tells into the health news that every driver gives (`health.news`). Pure.

A part is named by the GPU's UUID. For one MIG device it is `<GPU>/<gi>/<ci>`, or `<GPU>/<gi>` when the event names no
compute instance.
"""

from device_agent.contract.attributes import NVML
from device_agent.contract.reasons import DeviceReason
from device_agent.health.news import NO_ACTION, Answer, Check, DriverLoad, Fault, Look
from device_agent.nvml import xids
from device_agent.nvml.model import Gpu, NvmlView, XidEvent


def look(view: NvmlView) -> Look:
    """The checks of one look at NVML."""
    if view.unavailable:
        return Look(checks={}, source=NVML, unanswered=view.unavailable, cause=DeviceReason.DRIVER_UNAVAILABLE)
    return Look(
        checks={gpu.uuid: _check(gpu) for gpu in view.gpus},
        source=NVML,
        load=DriverLoad(module=view.driver_load, epoch=view.epoch),
    )


def _check(gpu: Gpu) -> Check:
    state = gpu.state
    if not state.known:
        message = f"the driver's library gives no answer for {gpu.uuid}: run nvidia-smi -q -i {gpu.uuid} on the node"
        return Check(Answer.UNKNOWN, message=message, fresh=state.asked)
    failures = state.failures
    action = state.recovery_action
    if not failures and action not in ("", NO_ACTION):
        failures = ((DeviceReason.RECOVERY_ACTION_PENDING, f"the driver asks for a recovery action: {action}"),)
    if not failures:
        return Check(Answer.GOOD, action=action, fresh=state.asked)
    first = next((f for f in failures if f[0] == DeviceReason.GPU_LOST), failures[0])
    others = [cause for cause, _ in failures if cause != first[0]]
    return Check(
        answer=Answer.LOST if first[0] == DeviceReason.GPU_LOST else Answer.BAD,
        cause=first[0],
        message=first[1] + (f"; also {', '.join(others)}" if others else ""),
        action=action,
        fresh=state.asked,
    )


def fault(event: XidEvent, gpu: Gpu | None) -> Fault:
    """The fault that the event announces. `gpu`: the GPU of the event as last seen, if it was."""
    part = "/".join(str(step) for step in (event.uuid, *_instance(event, gpu)) if step is not None)
    load = DriverLoad(module=event.driver_load, epoch=event.epoch)
    return Fault(part=part, code=xids.code(event.xid), source=NVML, load=load)


def _instance(event: XidEvent, gpu: Gpu | None) -> tuple[int | None, ...]:
    """The numbers of the MIG device that the event names; none if the error is the whole GPU's.

    A GPU without MIG may announce an XID with the numbers 0 and 0, which name no MIG device there.
    """
    parted = gpu.mig_mode if gpu is not None else None
    if parted is None:  # not known, or no MIG
        parted = bool(event.gi or event.ci)
    return (event.gi, event.ci) if parted else ()
