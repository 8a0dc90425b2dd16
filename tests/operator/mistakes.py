"""Mistakes that admins make in a week of work, the facts that must be seen, and docs/mistakes.md, which shows all.

A mistake is in a file that `kubectl apply` refuses (`REFUSED`), in a file that the operator judges (`ROWS`) or that a
node's agent tries (`FOUND`), or it is something done to a running installation (`RUNNING`).
"""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NIC = "example.com/nic"
KVM = {"files": {"paths": ["/dev/kvm"]}}


@dataclass(frozen=True)
class Mistake:
    """`did`: what the admin did. `facts`: texts that the output must have. `spec`: of the object, if it is in a file.

    `look`: the command that shows it. `cure`: for the page.
    """

    did: str
    facts: tuple[str, ...]
    spec: dict[str, Any] = field(default_factory=dict)
    look: str = ""
    cure: str = ""


def _entry(**fields: Any) -> dict[str, Any]:
    return {"resources": [{"name": NIC, "devices": [KVM], **fields}]}


def _found_by(source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return _entry(devices=[source], **fields)


def _pool(**fields: Any) -> dict[str, Any]:
    return {**_entry(), "nodePools": [{"name": "edge", **fields}]}


REFUSED: tuple[Mistake, ...] = (
    Mistake("a typo in a field", ('unknown field "spec.resorces"',), {**_entry(), "resorces": []}),
    Mistake("a resource name without a domain", ("a domain of your own, a slash and a name",), _entry(name="nic")),
    Mistake(
        "`policy: packed`, in lower case",
        ('Unsupported value: "packed"', '"Packed"'),
        _entry(allocation={"policy": "packed"}),
    ),
    Mistake(
        '`intervalSeconds: "10s"`, with a unit',
        ("intervalSeconds", "must be of type integer"),
        _entry(health={"intervalSeconds": "10s"}),
    ),
    Mistake('`replicas: "2"`, as a string', ("replicas", "must be of type integer"), _entry(sharing={"replicas": "2"})),
    Mistake(
        "`counts: [1, 4]` beside `maxPerContainer: 2`",
        ("a count is above sharing.maxPerContainer", "change one of the two"),
        _entry(sharing={"replicas": 4, "maxPerContainer": 2}, allocation={"counts": [1, 4]}),
    ),
    Mistake(
        "a device file outside /dev",
        ("paths[0]", "must be an absolute path below /dev"),
        _found_by({"files": {"paths": ["/opt/dev/kvm"]}}),
    ),
    Mistake(
        "PCI ids in capitals, as a data sheet has them",
        ("matched in lower case", "write 10de, not 10DE"),
        _found_by({"pci": {"ids": ["10DE:1EB8"]}}),
    ),
    Mistake(
        "two sources in one item of `devices`",
        ("needs exactly one source",),
        _found_by({"pci": {}, "files": {"paths": ["/dev/kvm"]}}),
    ),
    Mistake(
        "a path as `containerPath` that ends in a slash",
        ("containerPath", "a slash at the end"),
        _entry(inject={"deviceNodes": [{"hostPath": "/dev/net/tun", "containerPath": "/dev/net/"}]}),
    ),
    Mistake(
        "two entries of one name", ("Duplicate value",), {"resources": [*_entry()["resources"], *_entry()["resources"]]}
    ),
    Mistake(
        "`serves` names a resource that no entry has",
        ("serves", "spec.resources"),
        _pool(serves=["example.com/nick"]),
    ),
)
"""Files that `kubectl apply` refuses."""

ROWS: tuple[Mistake, ...] = (
    Mistake(
        "PCI ids with 0x, as /sys shows them",
        ("InvalidSpec", "spec.resources[0].devices[0].pci.ids", "write '10de:1eb8'"),
        _found_by({"pci": {"ids": ["0x10de:0x1eb8"]}}),
    ),
    Mistake(
        "a regular expression where globs are meant",
        ("InvalidSpec", "loop[0-9]+", "write 'loop[0-9]*'"),
        _found_by({"sysfs": {"subsystem": "block", "names": ["loop[0-9]+"]}}),
    ),
    Mistake(
        "`usb.vendor: 046D`, in capitals",
        ("InvalidSpec", "write '046d'"),
        _found_by(
            {"sysfs": {"subsystem": "tty"}, "include": [{"attribute": "usb.vendor", "values": ["046D"]}]},
        ),
    ),
    Mistake(
        "a typo in a placeholder",
        ("InvalidSpec", "inject.env[0].value", "did you mean 'pci.address'?"),
        _found_by({"pci": {}}, inject={"env": [{"name": "ADDRESS", "value": "{pci.adress}"}]}),
    ),
    Mistake(
        "`${path}`, as in a shell",
        ("InvalidSpec", "inject.env[0].value", "write {path}"),
        _entry(inject={"env": [{"name": "NODE", "value": "${path}"}]}),
    ),
    Mistake(
        "a typo in the name of a preset",
        ("InvalidSpec", "did you mean nvidia-gpu-cdi?"),
        {"resources": [{"name": "nvidia.com/gpu", "preset": "nvidia-gpu-cid"}]},
    ),
    Mistake(
        "an attribute that devices of this source do not have",
        ("InvalidSpec", "devices of files have no attribute 'uuid'", "it belongs to nvml"),
        _entry(unit="uuid"),
    ),
    Mistake(
        "more devices than a node can offer",
        ("InvalidSpec", "30,000 ids", "at most 20,000"),
        _found_by({"simulated": {"count": 10000}}, sharing={"replicas": 3}),
    ),
    Mistake(
        "the label's value in another case: `hardware: Lab`",
        ("NoNodes", "pool edge has no node", "did you mean hardware=lab?"),
        _pool(nodeSelector={"hardware": "Lab"}),
    ),
    Mistake(
        "a typo in the label: `hardwere: lab`",
        ("NoNodes", "pool edge has no node", "did you mean hardware?"),
        _pool(nodeSelector={"hardwere": "lab"}),
    ),
    Mistake(
        "labels of two different nodes in one `nodeSelector`",
        ("NoNodes", "no Linux node matches its nodeSelector and nodeSelectorTerms together"),
        _pool(nodeSelector={"hardware": "lab", "zone": "b"}),
    ),
    Mistake(
        "two pools that match one node",
        ("PoolOverlap", "edge", "lab", "worker-1"),
        {**_entry(), "nodePools": [{"name": "edge"}, {"name": "lab", "nodeSelector": {"hardware": "lab"}}]},
    ),
)
"""Files that the API server takes. The operator finds the mistake without any agent."""

FOUND: tuple[Mistake, ...] = (
    Mistake(
        "a typo in the subsystem: `video4linus`",
        ("NothingFound", "did you mean video4linux?"),
        _found_by({"sysfs": {"subsystem": "video4linus"}}),
    ),
    Mistake(
        "the subsystem in capitals: `USB`",
        ("NothingFound", "did you mean usb?"),
        _found_by({"sysfs": {"subsystem": "USB"}}),
    ),
    Mistake(
        "a typo in a path: `/dev/wigdet0`",
        ("NothingFound", "did you mean /dev/widget0?"),
        _found_by({"files": {"paths": ["/dev/wigdet0"]}}),
    ),
    Mistake(
        "a PCI id that no node has",
        ("NothingFound", "10de:1eb9", "10de:1eb8"),
        _found_by({"pci": {"ids": ["10de:1eb9"]}}),
    ),
    Mistake(
        "a PCI class that no function has",
        ("NothingFound", "no PCI function of this node has classes 0604"),
        _found_by({"pci": {"classes": ["0604"]}}),
    ),
    Mistake(
        "the driver by another name: `vfio_pci`",
        ("NothingFound", "drivers vfio_pci", "did you mean vfio-pci?"),
        _found_by({"pci": {"drivers": ["vfio_pci"]}}),
    ),
    Mistake(
        "an `include` that no device passes",
        ("NothingFound", "NotIncluded", "name is 'widget0', not gadget*"),
        _found_by(
            {"files": {"paths": ["/dev/widget0"]}, "include": [{"attribute": "name", "values": ["gadget*"]}]},
        ),
    ),
    Mistake(
        "an earlier entry that takes the devices of this one",
        ("NothingFound", "OwnedByEarlierEntry", "example.com/all"),
        {
            "resources": [
                {"name": "example.com/all", "devices": [{"files": {"paths": ["/dev/widget*"]}}]},
                {"name": NIC, "devices": [{"files": {"paths": ["/dev/widget0"]}}]},
            ]
        },
    ),
    Mistake(
        "a companion node that the node does not have",
        ("DevicesUnhealthy", "CompanionMissing", "/dev/net/tun"),
        _found_by({"files": {"paths": ["/dev/widget0"]}}, inject={"deviceNodes": [{"hostPath": "/dev/net/tun"}]}),
    ),
    Mistake(
        "`unit: usb.serial` for devices that are not on USB",
        ("NothingFound", "MissingAttribute", "it has no usb.serial"),
        _found_by({"files": {"paths": ["/dev/widget0"]}}, unit="usb.serial"),
    ),
)
"""Files whose mistake only a node can show: its agent looks."""

_ROW = "kubectl get dpc lab -o wide"

RUNNING: tuple[Mistake, ...] = (
    Mistake(
        "an edit with a mistake, which nobody looked at",
        ("InvalidSpec", "True", "did you mean 'pci.address'?"),
        look=_ROW,
        cure="READY is True, because the accepted generation goes on. Correct the edit, or apply the last good file again.",
    ),
    Mistake(
        "two objects that serve one resource on one node",
        ("ResourceConflict", "example.com/nic", "worker-1"),
        look=_ROW,
        cure="Take the resource out of one object, or let their pools match different nodes.",
    ),
    Mistake(
        "a taint that the pool does not tolerate",
        ("Tainted", "hardware=fpga:NoSchedule", "worker-1"),
        look=_ROW,
        cure="Add a toleration to the pool, or remove its `tolerations`: without them every taint is tolerated.",
    ),
    Mistake(
        "an image that does not exist",
        ("ImagePullBackOff", "worker-1", 'image "registry.example.com/device-agnet:1"'),
        look=_ROW,
        cure="Correct the image in the chart's values, or give `imagePullSecrets`.",
    ),
    Mistake(
        "the operator's namespace without its pod-security label",
        ("FailedCreate", "violates PodSecurity"),
        look=_ROW,
        cure="`kubectl label namespace device-operator pod-security.kubernetes.io/enforce=privileged`",
    ),
    Mistake(
        "the agents' ServiceAccount deleted",
        ("FailedCreate", "service account", "not found"),
        look=_ROW,
        cure="`helm upgrade` the chart: it makes the account again.",
    ),
    Mistake(
        "a ResourceQuota in the operator's namespace",
        ("FailedCreate", "exceeded quota"),
        look=_ROW,
        cure="Raise the quota; agents need one pod on each node.",
    ),
    Mistake(
        "`paused: true`, forgotten",
        ("Paused", "spec.paused is true"),
        look=_ROW,
        cure="Set `spec.paused: false`.",
    ),
    Mistake(
        "the label taken off a node whose pods hold devices",
        ("NodesLost", "worker-1", "default/trainer", "give the node its labels back"),
        look=_ROW,
        cure="Give the node its label back, or end the pods and delete the inventory.",
    ),
    Mistake(
        "a wrong `kubeletRootDir`",
        ("PodResourcesUnavailable", "check agent.kubeletRootDir"),
        look=_ROW,
        cure="Set `agent.kubeletRootDir` to the kubelet's `--root-dir`.",
    ),
    Mistake(
        "a second object that selects a device which a pod holds under the first one",
        ("HeldAs", "default/trainer"),
        look="kubectl devices list --withheld -o wide",
        cure="Nothing is broken: the device is offered when the pod ends. Give each device to one object.",
    ),
    Mistake(
        "a vendor's own plugin left running",
        ("ForeignPlugin", NIC, "another device plugin on this node", "remove it"),
        look=_ROW,
        cure="Remove the other plugin's DaemonSet. The agent takes over within a minute.",
    ),
    Mistake(
        "a pod that asks for a resource that nobody serves",
        (
            "it asks for example.com/nick, and no DevicePluginConfig has a device of that name",
            "did you mean example.com/nic?",
        ),
        look="kubectl devices who pod/trainer",
        cure="Correct the name in the pod's `limits`.",
    ),
    Mistake(
        "the operator scaled to 0",
        ("OperatorScaledDown", "scaled to 0 replicas", "scale deploy"),
        look="kubectl devices check",
        cure="The command in the last line. Until then agents go on serving, and the age in column UPDATED grows.",
    ),
    Mistake(
        "the operator's process killed, and not started again",
        ("OperatorGone", "nothing is reconciled"),
        look="kubectl devices check",
        cure="Look at the operator's pods and logs, as the last line says.",
    ),
    Mistake(
        "a CustomResourceDefinition deleted",
        ("KindMissing", "nodedeviceinventories"),
        look="kubectl devices check",
        cure="Apply the CRDs again. Agents write their inventories anew; DevicePluginConfigs come from your backup.",
    ),
)
"""Done to a running installation."""

GROUPS: Mapping[str, tuple[str, tuple[Mistake, ...]]] = {
    "Refused by kubectl apply": ("kubectl apply -f lab.yaml", REFUSED),
    "Taken by the API server, refused by the operator": (_ROW, ROWS),
    "Seen by the agents": (_ROW, FOUND),
    "In a running installation": (_ROW, RUNNING),
}
_HEAD = """# Mistakes, and what you see

Each section is a mistake that somebody makes in a week of work, the command that shows it, its output, and the cure. Search this page for a word of
your output. A test makes every mistake and compares the output. All are seen within 30 seconds, most within two. Of `kubectl get dpc -o wide` the
columns that change from minute to minute are left out. Reasons without a section here: [troubleshooting](troubleshooting.md).
"""


def page(outputs: Mapping[str, str]) -> str:
    """docs/mistakes.md. `outputs`: by `Mistake.did`."""
    parts = [_HEAD]
    for group, (look, mistakes) in GROUPS.items():
        parts.append(f"## {group}\n")
        for m in mistakes:
            block = f"<!-- run by: tests/operator/test_mistakes.py -->\n```\n$ {m.look or look}\n{outputs[m.did]}```\n"
            parts.append(f"### {m.did[0].upper()}{m.did[1:]}\n{block}" + (f"{m.cure}\n" if m.cure else ""))
    return "\n".join(parts)


def outputs(text: str) -> dict[str, str]:
    """The outputs on a page, by `Mistake.did`."""
    found = dict(re.findall(r"^### (.*)\n<!-- .* -->\n```\n\$ .*\n((?:(?!```).*\n)*)```$", text, re.MULTILINE))
    titles = {f"{m.did[0].upper()}{m.did[1:]}": m.did for _, mistakes in GROUPS.values() for m in mistakes}
    return {titles[title]: output for title, output in found.items() if title in titles}


def wrapped(output: str) -> str:
    """An output as the page has it: lines of 150 characters at most."""
    lines = (textwrap.wrap(line, 150, break_long_words=False, break_on_hyphens=False) for line in output.splitlines())
    return "".join(f"{line}\n" for part in lines for line in part)


def plain(output: str) -> list[str]:
    """The words of an output, without what differs from run to run."""
    return re.sub(r"\b(\d+[hm])*\d+s\b|\d{4}-\d\d-\d\dT[\d:]+Z|\S*-[0-9a-f]{6,10}\b\S*", "…", output).split()
