"""NVIDIA's driver library: a source of devices, health news, NVLinks, telemetry and node labels.

Exports: `setup.Nvidia` (the `DriverSetup`) with its parts `access` and `setup.Wanted`; for a single scan also
`session.NvmlSession`, `model.NvmlView` and `source.opener`. Only `options.py` and `scan.py` import this package.
May import `discovery` and the packages below it.
"""
