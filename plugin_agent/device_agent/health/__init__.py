"""When a device is healthy, why it is not, and what ends a failure. Pure.

Exports: `state_machine`, `conditions` (of all devices), `assessment` (what is told of one), `acknowledgement`.
May import select and what is below it; it does no I/O, has no clock and knows no vendor.
"""
