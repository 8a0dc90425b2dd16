"""What is on the node: sources of devices, the kernel's hints, and the loop that scans.

Exports: `source` (the protocol of all sources), `scanner`, `scan_loop`, `node_watch`; for driver libraries `driver`,
`driver_library`, `driver_news`, `host_tree` and `sysfs_tree`. It reads and never changes hardware.
May import the device table and what is below it; no driver library.
"""
