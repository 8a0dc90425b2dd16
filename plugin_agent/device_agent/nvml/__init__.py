"""NVIDIA's driver library: a source of devices, a feed of their health and a feed of telemetry.

Exports: `source`, `watch` (looks and events), `report` (metrics and node labels), `access` (how the driver is reached).
May import discovery and what is below it; nobody but the process itself imports it.
"""
