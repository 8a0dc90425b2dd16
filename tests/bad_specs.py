"""DevicePluginConfigs that admins get wrong, each with the message it gets.

API: the API server refuses it, as `kubectl create` sees it (strict field validation, kubectl's default).
OPERATOR: the API server takes it, the operator refuses it, and the object shows Accepted=False with the message.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

API = "api"
OPERATOR = "operator"

NIC = "example.com/nic"
KVM = {"files": {"paths": ["/dev/kvm"]}}


@dataclass(frozen=True)
class Case:
    name: str
    by: str
    message: str
    object: Mapping[str, Any]


def config(spec: Any, *, name: str = "lab") -> dict[str, Any]:
    return {
        "apiVersion": "device-operator.io/v1alpha1",
        "kind": "DevicePluginConfig",
        "metadata": {"name": name},
        "spec": spec,
    }


def entry(**fields: Any) -> dict[str, Any]:
    return {"name": NIC, "devices": [KVM], **fields}


def _one(**fields: Any) -> dict[str, Any]:
    return config({"resources": [entry(**fields)]})


def _preset(name: str, **fields: Any) -> dict[str, Any]:
    return config({"resources": [{"name": NIC, "preset": name, **fields}]})


def _source(**source: Any) -> dict[str, Any]:
    return _one(devices=[source])


def _pool(**fields: Any) -> dict[str, Any]:
    return config({"resources": [entry()], "nodePools": [{"name": "edge", **fields}]})


def _cordon(**rule: Any) -> dict[str, Any]:
    return config({"resources": [entry()], "cordon": [rule]})


def _node(**fields: Any) -> dict[str, Any]:
    return _one(inject={"deviceNodes": [fields]})


def _env(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return _one(inject={"env": list(entries)})


def _agent(**fields: Any) -> dict[str, Any]:
    return config({"resources": [entry()], "agent": fields})


BIG = config(
    {
        "resources": [
            {
                "name": f"example.com/r{i}",
                "devices": [{"files": {"paths": [f"/dev/r{i}"]}}],
                "inject": {"env": [{"name": f"E{j}", "value": "x" * 600} for j in range(32)]},
            }
            for i in range(64)
        ]
    }
)

CASES = (
    # ---- names
    Case("config name too long", API, "at most 40 lower-case letters", config({"resources": [entry()]}, name="x" * 41)),
    Case("config name with a dot", API, "at most 40 lower-case letters", config({"resources": [entry()]}, name="a.b")),
    Case("pool name too long", API, "may not be more than 20", _pool(name="a-pool-with-a-long-name")),
    Case("pool name in capitals", API, "at most 20 lower-case letters", _pool(name="Edge")),
    Case(
        "two pools of one name",
        API,
        "Duplicate value",
        config({"resources": [entry()], "nodePools": [{"name": "a"}, {"name": "a"}]}),
    ),
    Case("resource without a domain", API, "must be a domain of your own, a slash and a name", _one(name="nic")),
    Case("resource in a reserved domain", API, "kubernetes.io is reserved", _one(name="kubernetes.io/nic")),
    Case("placeholder before the slash", API, "after the slash only", _one(name="{name}.example.com/nic")),
    Case("two entries of one name", API, "Duplicate value", config({"resources": [entry(), entry()]})),
    Case(
        "resource name that ends in a dash",
        OPERATOR,
        "beginning and ending with a letter or digit",
        _one(name="a.b/c-"),
    ),
    # ---- emptiness
    Case("no spec", API, "spec: Required value", {k: v for k, v in config(None).items() if k != "spec"}),
    Case("no resources", API, "spec.resources: Required value", config({})),
    Case("empty resources", API, "should have at least 1 items", config({"resources": []})),
    Case("empty devices", API, "devices in body should have at least 1 items", _one(devices=[])),
    Case("empty paths", API, "paths in body should have at least 1 items", _source(files={"paths": []})),
    Case("empty serves", API, "serves in body should have at least 1 items", _pool(serves=[])),
    Case(
        "empty node pools",
        API,
        "nodePools in body should have at least 1 items",
        config({"resources": [entry()], "nodePools": []}),
    ),
    Case(
        "match without values",
        API,
        "values in body should have at least 1 items",
        _one(exclude=[{"attribute": "name", "values": []}]),
    ),
    Case("cordon without match", API, "spec.cordon[0].match: Required value", _cordon(reason="recall")),
    Case(
        "cordon by an unknown attribute",
        OPERATOR,
        "spec.cordon[0].match.attribute: unknown attribute 'colour'",
        _cordon(match={"attribute": "colour", "values": ["red"]}),
    ),
    Case(
        "cordon with an unclosed glob",
        OPERATOR,
        "spec.cordon[0].match.values: '[a-z' has a '[' without ']'",
        _cordon(match={"attribute": "name", "values": ["[a-z"]}),
    ),
    # ---- fields
    Case("misspelt field", API, 'unknown field "spec.resource"', config({"resources": [entry()], "resource": []})),
    Case(
        "misspelt nested field", API, 'unknown field "spec.resources[0].sharing.replica"', _one(sharing={"replica": 2})
    ),
    Case(
        "source of another release",
        API,
        'unknown field "spec.resources[0].devices[0].usb"',
        _source(usb={"ids": ["0403:6001"]}),
    ),
    Case("wrong type", API, "must be of type integer", _one(maxDevices="8")),
    Case("unknown enum value", API, 'Unsupported value: "Shared"', _one(ownership="Shared")),
    # ---- sources
    Case("no source", API, "needs exactly one source of pci, sysfs, files, simulated, nvml", _source(include=[])),
    Case(
        "two sources",
        API,
        "needs exactly one source of pci, sysfs, files, simulated, nvml",
        _source(**KVM, simulated={"count": 1}),
    ),
    Case("path outside /dev", API, "must be an absolute path below /dev", _source(files={"paths": ["/etc/passwd"]})),
    Case("path with ..", API, "without '..'", _source(files={"paths": ["/dev/../etc/passwd"]})),
    Case("PCI ids in capitals", API, "matched in lower case: write 10de, not 10DE", _source(pci={"ids": ["10DE:*"]})),
    Case("PCI vendor without device", API, "15b3:* for every device of the vendor", _source(pci={"ids": ["15b3"]})),
    Case(
        "subsystem as a path",
        API,
        "the name of one directory in /sys/class or /sys/bus",
        _source(sysfs={"subsystem": "class/block"}),
    ),
    Case("unhealthy index beyond count", API, "from 0 to count - 1", _source(simulated={"count": 2, "unhealthy": [2]})),
    Case("20,001 devices", API, "should be less than or equal to 20000", _source(simulated={"count": 20001})),
    Case(
        "20,001 ids",
        OPERATOR,
        "6,667 devices x 3 replicas = 20,001 ids, a node can offer at most 20,000",
        _one(devices=[{"simulated": {"count": 6667}}], sharing={"replicas": 3}),
    ),
    Case(
        "20,001 ids in two entries",
        OPERATOR,
        "20,001 devices x 1 replicas = 20,001 ids, a node can offer at most 20,000",
        _one(devices=[{"simulated": {"count": 20000}}, {"simulated": {"count": 1}}]),
    ),
    Case("kind of NVIDIA device", API, 'Unsupported value: "Gpu"', _source(nvml={"kind": "Gpu"})),
    Case(
        "bracket that is not closed",
        OPERATOR,
        "exclude[0].values: '[abc' has a '[' without ']', so it matches a literal '['",
        _one(exclude=[{"attribute": "name", "values": ["[abc"]}]),
    ),
    Case("PCI id with 0x", OPERATOR, "write '10de:1eb8'", _source(pci={"ids": ["0x10de:0x1eb8"]})),
    Case("class with 0x", OPERATOR, "write '0300'", _source(pci={"classes": ["0x0300"]})),
    Case(
        "hex attribute in capitals",
        OPERATOR,
        "write '046d'",
        _one(exclude=[{"attribute": "usb.vendor", "values": ["046D"]}], devices=[{"sysfs": {"subsystem": "tty"}}]),
    ),
    Case(
        "regular expression",
        OPERATOR,
        "write 'loop[0-9]*'",
        _source(sysfs={"subsystem": "block", "names": ["loop[0-9]+"]}),
    ),
    Case("dollar before a placeholder", OPERATOR, "write {path}", _env({"name": "LOOP", "value": "${path}"})),
    # ---- presets
    Case("neither devices nor a preset", API, "or a preset that has them", config({"resources": [{"name": NIC}]})),
    Case(
        "misspelt preset",
        OPERATOR,
        "'nvidia-gpu-cid' is no preset: did you mean nvidia-gpu-cdi?",
        _preset("nvidia-gpu-cid"),
    ),
    Case("unknown preset", OPERATOR, "'x' is no preset; there are: nvidia-gpu-cdi, nvidia-gpu-env,", _preset("x")),
    Case(
        "preset with devices of another kind",
        OPERATOR,
        "inject.env[0].value: devices of files have no attribute 'uuid'; it belongs to nvml",
        _preset("nvidia-gpu-env", devices=[KVM]),
    ),
    Case(
        "own nodes that a preset does not give",
        OPERATOR,
        "ownNodes None gives no own nodes, so 'nvidia*' selects nothing; use Listed",
        _preset("nvidia-gpu-cdi", inject={"deviceNodes": [{"own": "nvidia*"}]}),
    ),
    # ---- health
    Case("no interval", API, "should be greater than or equal to 1", _one(health={"intervalSeconds": 0})),
    Case("XID twice", API, "Duplicate value", _preset("nvidia-gpu-cdi", health={"xids": [{"xid": 79}, {"xid": 79}]})),
    Case(
        "XID beyond all",
        API,
        "should be less than or equal to 999",
        _preset("nvidia-gpu-cdi", health={"ignoreXids": [1000]}),
    ),
    Case(
        "XID of another vendor",
        OPERATOR,
        "errors of the NVIDIA driver, and no source here is nvml",
        _one(health={"ignoreXids": [31]}),
    ),
    Case(
        "XID that counts and does not",
        OPERATOR,
        "31 is in ignoreXids too",
        _preset("nvidia-gpu-cdi", health={"ignoreXids": [31], "xids": [{"xid": 31}]}),
    ),
    Case(
        "health by an unknown attribute",
        OPERATOR,
        "health.unhealthyWhen[0].attribute: unknown attribute 'state'",
        _one(health={"unhealthyWhen": [{"attribute": "state", "values": ["down"]}]}),
    ),
    # ---- attributes and placeholders
    Case(
        "unknown attribute",
        OPERATOR,
        "did you mean 'numaNode'?",
        _one(exclude=[{"attribute": "numanode", "values": ["0"]}]),
    ),
    Case("unknown unit", OPERATOR, "unknown attribute 'serial'", _one(unit="serial")),
    Case(
        "unknown placeholder",
        OPERATOR,
        "unknown attribute 'pci.adress': did you mean 'pci.address'?",
        _env({"name": "A", "value": "{pci.adress}"}),
    ),
    Case(
        "attribute of another source",
        OPERATOR,
        "devices of simulated have no attribute 'driver'",
        _one(devices=[{"simulated": {"count": 1}}], unit="driver"),
    ),
    Case("single brace", OPERATOR, "write '{{' for a literal brace", _env({"name": "A", "value": "{"})),
    Case(
        "profile of whole GPUs",
        OPERATOR,
        "name: devices of nvml: {kind: GPU} have no attribute 'profile'; it belongs to nvml: {kind: MIG}",
        config({"resources": [{"name": "nvidia.com/mig-{profile}", "preset": "nvidia-gpu-cdi"}]}),
    ),
    # ---- sharing and allocation
    Case("replicas 0", API, "should be greater than or equal to 1", _one(sharing={"replicas": 0})),
    Case("replicas 10,001", API, "should be less than or equal to 10000", _one(sharing={"replicas": 10001})),
    Case(
        "count above the cap",
        API,
        "a count is above sharing.maxPerContainer",
        _one(sharing={"maxPerContainer": 2}, allocation={"counts": [1, 4]}),
    ),
    Case("count given twice", OPERATOR, "allocation.counts: 1 is given twice", _one(allocation={"counts": [1, 2, 1]})),
    # ---- inject
    Case("own and hostPath", API, "needs either own", _node(own="kvm", hostPath="/dev/kvm")),
    Case("neither own nor hostPath", API, "needs either own", _node(permissions="rw")),
    Case("own as an absolute path", API, "write dri/renderD*, not /dev/dri/renderD*", _node(own="/dev/kvm")),
    Case(
        "one containerPath for several devices",
        API,
        "set sharing.maxPerContainer: 1, or put a placeholder",
        _node(own="kvm", containerPath="/dev/mine"),
    ),
    Case("Listed without own", API, "add one, or use All", _one(inject={"ownNodes": "Listed"})),
    Case(
        "permissions in another order", API, "one or more of r, w, m in this order", _node(own="kvm", permissions="wr")
    ),
    Case("companion outside /dev", API, "must be an absolute path below /dev", _node(hostPath="/etc/shadow")),
    Case(
        "needed node as an absolute path",
        API,
        "write dri/renderD*, not /dev/dri/renderD*",
        _one(needs={"ownNodes": ["/dev/kvm"]}),
    ),
    Case(
        "mount path with ..",
        API,
        "without '..'",
        _one(inject={"mounts": [{"hostPath": "/opt/../etc", "containerPath": "/opt"}]}),
    ),
    Case(
        "mount that is all placeholder",
        OPERATOR,
        "needs a literal directory before its first placeholder",
        _one(inject={"mounts": [{"hostPath": "/{name}", "containerPath": "/opt"}]}),
    ),
    Case("env name with '='", API, "must be the name of an environment variable", _env({"name": "A=B", "value": ""})),
    Case(
        "env set twice",
        OPERATOR,
        "join the values in one entry, or keep them apart by counts",
        _env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}),
    ),
    Case("CDI name without a class", API, "must read vendor.com/class=name", _one(inject={"cdiDevices": ["gpu0=1"]})),
    Case(
        "CDI class that ends in a dot",
        API,
        "must read vendor.com/class=name",
        _one(inject={"cdiDevices": ["vendor.com/gpu.={name}"]}),
    ),
    # ---- pools
    Case(
        "serves an unknown entry",
        API,
        "serves lists a name that no entry of spec.resources has",
        _pool(serves=["example.com/nics"]),
    ),
    Case(
        "Windows nodes", OPERATOR, "agents run on Linux nodes only", _pool(nodeSelector={"kubernetes.io/os": "windows"})
    ),
    Case("label value with a space", OPERATOR, "is no label value", _pool(nodeSelector={"hardware": "my edge"})),
    Case("empty term", API, "an empty term matches no node", _pool(nodeSelectorTerms=[{}])),
    Case(
        "In without values",
        API,
        "need values",
        _pool(nodeSelectorTerms=[{"matchExpressions": [{"key": "a", "operator": "In"}]}]),
    ),
    Case(
        "Gt with a word",
        API,
        "exactly one value, a whole number",
        _pool(nodeSelectorTerms=[{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["many"]}]}]),
    ),
    Case(
        "matchFields of another field",
        API,
        "key must be metadata.name",
        _pool(nodeSelectorTerms=[{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n"]}]}]),
    ),
    Case(
        "toleration without key",
        API,
        "without key it needs operator Exists",
        _pool(tolerations=[{"effect": "NoSchedule"}]),
    ),
    Case(
        "toleration key with a space",
        OPERATOR,
        "is no label key",
        _pool(tolerations=[{"key": "a b", "operator": "Exists"}]),
    ),
    Case(
        "Gt with a negative number",
        API,
        "whole number without a sign",
        _pool(nodeSelectorTerms=[{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["-5"]}]}]),
    ),
    Case(
        "node name in capitals",
        API,
        "must be the name of a node, in lower case",
        _pool(nodeSelectorTerms=[{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["Node-1"]}]}]),
    ),
    Case("label key with an empty part", OPERATOR, "is no label key", _pool(nodeSelector={"a..b/c": "x"})),
    # ---- agent
    Case("quantity with a wrong suffix", API, "should match", _agent(resources={"limits": {"memory": "64MB"}})),
    Case(
        "request above limit",
        OPERATOR,
        "is above limits.memory",
        _agent(resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "64Mi"}}),
    ),
    Case(
        "the operator's own variable", API, "is set by the operator", _agent(env=[{"name": "NODE_NAME", "value": "x"}])
    ),
    Case(
        "a name that is no compute resource of agents",
        API,
        "use only cpu, memory and ephemeral-storage",
        _agent(resources={"limits": {"gpu": 1}}),
    ),
    Case("NUL in the agent's environment", OPERATOR, "has a NUL", _agent(env=[{"name": "A", "value": "a\0"}])),
    Case("unknown log level", API, "Unsupported value", _agent(logLevel="debug")),
    Case("relative kubelet directory", API, "must be an absolute path", _agent(kubeletRootDir="kubelet")),
    Case(
        "two ways to the driver",
        API,
        "or driverRoot alone",
        _agent(driverAccess={"runtimeClass": "nvidia", "driverRoot": "/"}),
    ),
    Case("no way to the driver", API, "needs either runtimeClass or cdiDevice", _agent(driverAccess={})),
    Case(
        "two ways to the driver in a pool",
        API,
        "or driverRoot alone",
        _pool(agent={"driverAccess": {"driverRoot": "/", "cdiDevice": "management.nvidia.com/gpu=all"}}),
    ),
    Case("driver root with ..", API, "must be / or an absolute path", _agent(driverAccess={"driverRoot": "/run/../x"})),
    Case(
        "driver root with a wildcard",
        API,
        "without '..', '//', '*', '?'",
        _agent(driverAccess={"driverRoot": "/run/nv*"}),
    ),
    Case("runtime class in capitals", API, "name of a RuntimeClass", _agent(driverAccess={"runtimeClass": "NVIDIA"})),
    Case(
        "management device without a name",
        API,
        "must read vendor.com/class=name",
        _agent(driverAccess={"cdiDevice": "nvidia.com/gpu"}),
    ),
    Case(
        "management device that ends in a dash",
        API,
        "must read vendor.com/class=name",
        _agent(driverAccess={"cdiDevice": "management.nvidia.com/gpu=all-"}),
    ),
    Case(
        "management device of a vendor that begins with a digit",
        API,
        "must read vendor.com/class=name",
        _agent(driverAccess={"cdiDevice": "1nvidia.com/gpu=all"}),
    ),
    Case("driver root of two slashes", API, "must be / or an absolute path", _agent(driverAccess={"driverRoot": "//"})),
    Case("bare On", API, 'supported values: "None", "Prometheus"', _agent(deviceMetrics="On")),
    Case("labels by another name", API, 'supported values: "None", "NFD"', _agent(nodeFeatures="GFD")),
    Case(
        "variable of the driver's root",
        API,
        "is set by the operator",
        _agent(env=[{"name": "DRIVER_ROOT", "value": "/"}]),
    ),
    Case(
        "variable of the way to the driver",
        API,
        "is set by the operator",
        _agent(env=[{"name": "DRIVER_ACCESS", "value": "{}"}]),
    ),
    Case("variable of the pod's name", API, "is set by the operator", _agent(env=[{"name": "POD_NAME", "value": "x"}])),
    Case("image with a space", API, "must be an image reference without spaces", _agent(image="a b")),
    # ---- the rest
    Case(
        "maxUnavailable 0",
        API,
        "a whole number from 1, or a percentage",
        config({"resources": [entry()], "updateStrategy": {"maxUnavailable": 0}}),
    ),
    Case(
        "maxUnavailable 110%",
        API,
        "a whole number from 1, or a percentage",
        config({"resources": [entry()], "updateStrategy": {"maxUnavailable": "110%"}}),
    ),
    Case(
        "maxUnavailable beyond 32 bits",
        API,
        "a whole number from 1, or a percentage",
        config({"resources": [entry()], "updateStrategy": {"maxUnavailable": 2**31}}),
    ),
    Case("configuration over 900 KiB", OPERATOR, "a ConfigMap holds at most 921,600", BIG),
)
