"""The operator: turns DevicePluginConfig objects into one DaemonSet per node pool and reports back."""

__version__ = "0.1.0"
