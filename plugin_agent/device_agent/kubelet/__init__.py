"""The kubelet's side of the agent: the device plugin API, registration, and the pod resources service."""
