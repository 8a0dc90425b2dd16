"""The node agent: finds devices, serves them to the kubelet, reports what it has and who holds it."""

__version__ = "0.1.0"
