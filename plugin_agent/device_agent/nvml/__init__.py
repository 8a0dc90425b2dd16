"""NVIDIA's driver library: a source of devices, news of their health and links, telemetry and node labels.

Exports: `nvidia` (all of it, as a `discovery.driver_library.DriverSetup`); for a single scan `source`, `session`, `access`.
May import discovery and what is below it; only the process and `device-agent scan` import it.
"""
