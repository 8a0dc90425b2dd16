"""What is on the node: sources of devices, the kernel's hints, and the loop that scans.

Exports: `source` (what every source is), `driver` (what a driver's library is), `scanner`, `scan_loop`, `companions`,
`boundary`. It reads and never changes hardware.
May import the device table and what is below it; no driver library.
"""
