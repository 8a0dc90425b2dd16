"""The kinds that the plugin reads, with their paths on the API server."""

from dataclasses import dataclass
from typing import Final

from device_agent.contract import names


@dataclass(frozen=True, slots=True)
class Kind:
    """`root`: api/v1 or apis/GROUP/VERSION. `plural`: as in the path and in RBAC."""

    root: str
    plural: str
    namespaced: bool = False

    def path(self, name: str = "", *, namespace: str = "", sub: str = "") -> str:
        """Of all objects, of those in a namespace, of one, or of a subresource."""
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/" + "/".join(part for part in (self.root + where, self.plural, name, sub) if part)

    @property
    def resource(self) -> str:
        """As in RBAC and for kubectl: plural, and group if there is one."""
        _, _, rest = self.root.partition("apis/")
        group = rest.partition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural


_OWN: Final = f"apis/{names.API_VERSION}"
CONFIGS: Final = Kind(_OWN, "devicepluginconfigs")
INVENTORIES: Final = Kind(_OWN, "nodedeviceinventories")
CRDS: Final = Kind("apis/apiextensions.k8s.io/v1", "customresourcedefinitions")
NODES: Final = Kind("api/v1", "nodes")
PODS: Final = Kind("api/v1", "pods", namespaced=True)
CONFIGMAPS: Final = Kind("api/v1", "configmaps", namespaced=True)
EVENTS: Final = Kind("api/v1", "events", namespaced=True)
SERVICE_ACCOUNTS: Final = Kind("api/v1", "serviceaccounts", namespaced=True)
DEPLOYMENTS: Final = Kind("apis/apps/v1", "deployments", namespaced=True)
DAEMONSETS: Final = Kind("apis/apps/v1", "daemonsets", namespaced=True)
LEASES: Final = Kind("apis/coordination.k8s.io/v1", "leases", namespaced=True)
