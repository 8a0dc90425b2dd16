"""A real Kubernetes of several nodes on this one machine, without a service manager, a registry or a virtual machine.

>>> cluster = Cluster("test")
>>> cluster.up(nodes=2)
>>> print(cluster.kubectl("get", "nodes"))
>>> cluster.down()
"""

from localcluster.cluster import Cluster
from localcluster.console import LocalClusterError
from localcluster.profile import PROFILES, Profile

__all__ = ["PROFILES", "Cluster", "LocalClusterError", "Profile"]
