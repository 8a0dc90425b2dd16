"""A real Kubernetes of several nodes on this one machine, without a service manager, a registry or a virtual machine.

    from localcluster import Cluster

    cluster = Cluster("test")
    cluster.up(nodes=2)
    cluster.kubectl("get", "nodes")
    cluster.down()
"""

from localcluster.cluster import Cluster
from localcluster.console import LocalClusterError
from localcluster.profile import PROFILES, Profile

__all__ = ["PROFILES", "Cluster", "LocalClusterError", "Profile"]
