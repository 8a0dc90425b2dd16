"""A spec that has every field of a DevicePluginConfig, as an admin could write it."""

MATCH = {"attribute": "numaNode", "values": ["0"]}
EVERYTHING = {
    "paused": False,
    "resources": [
        {
            "name": "example.com/nic-{driver}",
            "devices": [
                {
                    "pci": {
                        "ids": ["1af4:1041"],
                        "classes": ["02*"],
                        "drivers": ["virtio-pci"],
                        "addresses": ["0000:*"],
                    },
                    "include": [MATCH],
                },
                {"sysfs": {"subsystem": "net", "names": ["eth*"]}},
                {"files": {"paths": ["/dev/vfio/[0-9]*"]}},
            ],
            "exclude": [{"attribute": "pf.netName", "values": ["eth0"]}],
            "unit": "pci.address",
            "maxDevices": 8,
            "ownership": "None",
            "sharing": {"replicas": 2, "maxPerContainer": 1, "perDevice": [{"match": MATCH, "replicas": 3}]},
            "allocation": {"policy": "Topology", "counts": [1], "topologyHints": "Omit"},
            "inject": {
                "ownNodes": "Listed",
                "deviceNodes": [
                    {"own": "tty*", "containerPath": "/dev/modem", "permissions": "rw", "env": "MODEM_PORT"},
                    {"hostPath": "/dev/net/tun", "permissions": "r", "optional": True},
                ],
                "mounts": [{"hostPath": "/opt/fw", "containerPath": "/opt/fw", "readOnly": True}],
                "env": [{"name": "NIC{position}", "value": "{pci.address}", "counts": [1], "optional": True}],
                "annotations": [{"name": "example.com/nic", "value": "{name}"}],
                "cdiDevices": ["vendor.com/nic={pci.address}"],
            },
        },
        {
            "name": "nvidia.com/gpu",
            "preset": "nvidia-gpu-nodes",
            "devices": [{"nvml": {"kind": "GPU"}, "include": [{"attribute": "model", "values": ["*A100*"]}]}],
            "inject": {"ownNodes": "All"},
            "health": {
                "unhealthyWhen": [{"attribute": "migMode", "values": ["Enabled"]}],
                "intervalSeconds": 5,
                "failureThreshold": 2,
                "recoveryThreshold": 6,
                "removalGraceSeconds": 0,
                "ignoreXids": [31, 43],
                "xids": [{"xid": 94, "clears": "Quiet"}, {"xid": 119}],
            },
        },
        {"name": "nvidia.com/mig-{profile}", "preset": "nvidia-mig-cdi"},
        {"name": "example.com/sim", "devices": [{"simulated": {"count": 4, "numaNodes": 2, "unhealthy": [3]}}]},
    ],
    "nodePools": [
        {
            "name": "edge",
            "nodeSelector": {"hardware": "edge"},
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "a", "operator": "In", "values": ["x"]},
                        {"key": "b", "operator": "Exists"},
                    ]
                },
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
            ],
            "tolerations": [
                {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}
            ],
            "serves": ["example.com/nic-{driver}"],
            "agent": {"logLevel": "Debug", "driverAccess": {"driverRoot": "/run/nvidia/driver"}},
        },
        {"name": "lab", "nodeSelector": {"hardware": "lab"}, "tolerations": []},
    ],
    "agent": {
        "image": "registry.example.com/agent:1",
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"memory": "0.5Gi"}},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "priorityClassName": "system-node-critical",
        "logLevel": "Info",
        "kubeletRootDir": "/var/lib/kubelet",
        "driverAccess": {"runtimeClass": "nvidia", "cdiDevice": "management.nvidia.com/gpu=all"},
        "deviceMetrics": "Prometheus",
        "nodeFeatures": "NFD",
    },
    "updateStrategy": {"maxUnavailable": "10%"},
}
