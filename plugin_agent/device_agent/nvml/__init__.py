"""NVIDIA's driver library: a source of devices, news of their health and links, telemetry and node labels.

Exports: `nvidia` (all of it, as a `DriverSetup`); for a single scan `source`, `session` and `access`.
May import discovery and what is below it; only the process and `device-agent scan` import it.
"""
