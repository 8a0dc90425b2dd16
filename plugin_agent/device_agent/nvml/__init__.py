"""NVIDIA GPUs through the driver's management library (NVML): values, the library, its threads."""
