"""An accepted spec as Kubernetes manifests, byte-stable. Pure.

Exports: `manifests` (ConfigMap and DaemonSet of each pool), whose texts are in templates/.

Imports `spec`.
"""
