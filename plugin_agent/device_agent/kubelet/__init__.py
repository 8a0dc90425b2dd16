"""One way of serving the device table: the kubelet's device plugin API and its PodResources service.

Exports: `served_names` (which resource names are registered), `registration`, `podresources`, `record_watch` (the
kubelet's own record), `allocatable`, `sockets`.
May import the device table and what is below it. By agreement it imports no source of devices and no driver library.
"""
