"""Which container has which ids, as the kubelet keeps it: in its memory, and in a file that outlives it.

It follows pkg/kubelet/cm/devicemanager (pod_devices.go, manager.go, checkpoint/checkpoint.go). Entries of a pod that
ended leave the memory at the next List or Allocate, and the file when it is written next. List leaves out plain init
containers. A kubelet that starts reads the file; if that is torn or gone it begins with nothing, and its pods run on.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from device_agent.kubelet.proto import podresources_pb2 as pr

Pod = tuple[str, str]
"""(namespace, name)."""


@dataclass
class Entry:
    """`pod`: uid; `answer`: the ContainerAllocateResponse as bytes."""

    pod: str
    container: str
    resource: str
    ids: list[str]
    answer: bytes = b""
    init: bool = False


@dataclass
class Checkpoint:
    """`running`: uid -> pod, as the API server has it. `file`: what the kubelet reads at its start."""

    file: Path
    running: dict[str, Pod] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    made: int = 0
    kept: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    """Names of pods whose entries stay when they end, which `kept` has then (kubernetes/kubernetes#130145)."""
    readable: bool = True
    """False: it is written in a form of another release."""

    def begin(self, pod: Pod) -> str:
        """The uid of a pod; a new one where none of this name runs."""
        for uid, running in self.running.items():
            if running == pod:
                return uid
        self.made += 1
        uid = f"00000000-0000-4000-8000-{self.made:012}"
        self.running[uid] = pod
        return uid

    def end(self, pod: str) -> None:
        """The pods of this name end. The kubelet drops what they had later."""
        self.kept |= {uid for uid, running in self.running.items() if running[1] == pod and pod in self.stuck}
        self.running = {uid: running for uid, running in self.running.items() if running[1] != pod}

    def drop_ended(self) -> None:
        """UpdateAllocatedDevices."""
        self.entries = [entry for entry in self.entries if entry.pod in self.running or entry.pod in self.kept]

    def held(self, resource: str) -> set[str]:
        """Ids of pods that run."""
        return {i for e in self.entries if e.resource == resource and e.pod in self.running for i in e.ids}

    def assign(self, pod: Pod, container: str, resource: str, ids: Iterable[str], **fields) -> None:
        self.entries.append(Entry(self.begin(pod), container, resource, list(ids), **fields))
        self.write()

    def write(self) -> None:
        """Replaces the file by a rename."""
        entries = [
            {
                "PodUID": entry.pod,
                "ContainerName": entry.container,
                "ResourceName": entry.resource,
                "DeviceIDs": {"-1": entry.ids},
                "AllocResp": base64.b64encode(entry.answer).decode(),
            }
            for entry in self.entries
        ]
        data = {"Data": {"PodDeviceEntries": entries or None, "RegisteredDevices": None}, "Checksum": 1}
        if not self.readable:
            data = {"DataV3": data}
        new = self.file.with_name(".checkpoint-new")
        new.write_text(json.dumps(data))
        new.rename(self.file)

    def load(self) -> None:
        """What a kubelet does at its start."""
        try:
            entries = json.loads(self.file.read_text())["Data"]["PodDeviceEntries"] or ()
        except (OSError, ValueError, KeyError, TypeError):
            entries = ()
        kept = {(e["PodUID"], e["ContainerName"], e["ResourceName"]) for e in entries}
        self.entries = [e for e in self.entries if (e.pod, e.container, e.resource) in kept]

    def pod_resources(self) -> pr.ListPodResourcesResponse:
        """As List tells it."""
        self.drop_ended()
        answer = pr.ListPodResourcesResponse()
        for uid, (namespace, pod) in self.running.items():
            message = answer.pod_resources.add(name=pod, namespace=namespace)
            parts = {e.container: message.containers.add(name=e.container) for e in self.of(uid)}
            for entry in self.of(uid):
                for one in entry.ids:  # the kubelet makes one of each NUMA node
                    parts[entry.container].devices.add(resource_name=entry.resource, device_ids=[one])
        return answer

    def of(self, uid: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.pod == uid and not entry.init]
