"""The kubelet's own record of what it gave to which container. Nobody else writes it; this agent only reads it.

`kubelet_internal_checkpoint` lies beside the plugins' sockets (pkg/kubelet/cm/devicemanager: checkpoint/checkpoint.go,
manager.go writeCheckpoint). Its form was the same in all versions looked at, 1.32 to 1.36. The kubelet replaces it
after each Allocate of a container and after each device list from any plugin:

    {"Data": {"PodDeviceEntries": [{"PodUID", "ContainerName", "ResourceName", "DeviceIDs": {"<NUMA node>": [ids]},
     "AllocResp": base64 of ContainerAllocateResponse}] or null, "RegisteredDevices": {...} or null}, "Checksum": n}

The checksum is over Go's own print of the data; nobody outside the kubelet can compute it. A torn file is no JSON.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from device_agent.allocate import grant
from device_agent.contract.values import dataclass
from device_agent.kubelet.proto import deviceplugin_pb2 as dp
from device_agent.table.grants import Grant, hardware_words

FILE: Final = "kubelet_internal_checkpoint"
MAX_BYTES: Final = 256 * 1024 * 1024
"""110 pods with 20,000 ids each are a tenth of it."""


class RecordError(Exception):
    """The record is there and cannot be used. The message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which file it is. Inode numbers are used again, so the time counts as well."""

    inode: int
    mtime_ns: int
    size: int


def stamp(directory: Path) -> Stamp | None:
    """The record's file as it is now; None: there is none. It blocks on the disk.

    Raises:
        RecordError: it cannot be looked at.
    """
    try:
        found = (directory / FILE).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{FILE}: {error.strerror or error}") from error
    return Stamp(found.st_ino, found.st_mtime_ns, found.st_size)


def read(directory: Path) -> tuple[Grant, ...] | None:
    """All that the kubelet has given and not taken back; None when there is no file. It blocks on the disk.

    Raises:
        RecordError: it cannot be read, or its form is not known here.
    """
    path = directory / FILE
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{FILE}: {error.strerror or error}") from error
    if len(raw) > MAX_BYTES:
        raise RecordError(f"{FILE}: it is longer than {MAX_BYTES:,} bytes")
    return parse(raw)


def parse(raw: bytes) -> tuple[Grant, ...]:
    """The grants in the bytes of a record, in their order.

    Raises:
        RecordError: the form of the bytes is not known here.
    """
    try:
        data: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{FILE}: it is no JSON, perhaps torn: {_short(error)}") from error
    try:
        entries = data["Data"]["PodDeviceEntries"]
        return tuple(_grant(entry) for entry in _list(entries))
    except (KeyError, TypeError, ValueError, AttributeError, DecodeError) as error:
        raise RecordError(f"{FILE}: its form is not known to this agent: {_short(error)}") from error


def _grant(entry: Mapping[str, Any]) -> Grant:
    resource, by_node = _text(entry["ResourceName"]), entry["DeviceIDs"]
    by_node = {} if by_node is None else by_node
    ids = tuple(sorted({_text(i) for of_node in by_node.values() for i in _list(of_node)}))
    answer = dp.ContainerAllocateResponse()
    answer.ParseFromString(base64.b64decode(entry["AllocResp"] or "", validate=True))
    note = grant.read_note(answer.annotations.get(grant.key_of(resource), ""))
    return Grant(
        pod=_text(entry["PodUID"]),
        container=_text(entry["ContainerName"]),
        resource=resource,
        ids=ids,
        note=note,
        nodes=tuple(sorted({device.host_path for device in answer.devices})),
        # a note says all; without one, the strings say which hardware is meant
        words=hardware_words((*ids, *_strings(answer))) if note is None else (),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value


def _list(value: object) -> list[Any]:
    """A slice of Go, which is null where it is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} instead of a list")
    return value


def _strings(answer: dp.ContainerAllocateResponse) -> Iterator[str]:
    """All text of an answer except the paths of its nodes."""
    yield from answer.envs.values()
    yield from answer.annotations.values()
    for mount in answer.mounts:
        yield mount.host_path
    for device in answer.cdi_devices:
        yield device.name


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]
