"""Where the product's own objects are: the operator's Deployment, its namespace and its settings."""

from dataclasses import dataclass
from typing import Final

from kubectl_devices.cluster.api import Object
from kubectl_devices.cluster.kinds import DEPLOYMENTS
from kubectl_devices.cluster.reading import Reader

DEFAULT_NAMESPACE: Final = "device-operator"
_LABELS: Final = "app.kubernetes.io/part-of=device-operator,app.kubernetes.io/component=operator"


@dataclass(frozen=True, slots=True)
class Installation:
    """`deployments`: of the operator; None if the user may not list them."""

    namespace: str
    deployments: tuple[Object, ...] | None

    def flag(self, name: str, default: str) -> str:
        """A setting of the operator's container: its flag, or the variable that stands for the flag."""
        variable = f"DEVICE_OPERATOR_{name.upper().replace('-', '_')}"
        for deployment in self.deployments or ():
            for container in deployment["spec"]["template"]["spec"]["containers"]:
                for argument in container.get("args") or ():
                    key, _, value = str(argument).partition("=")
                    if key == f"--{name}" and value:
                        return value
                for item in container.get("env") or ():
                    if item["name"] == variable and item.get("value"):
                        return str(item["value"])
        return default


def find(reader: Reader, *, namespace: str = "") -> Installation:
    """By the chart's labels, in any namespace; where the user may not look, in the default one. `namespace`: as given
    by the user.
    """
    lost = f"the operator is looked for in {namespace or DEFAULT_NAMESPACE} alone"
    found = reader.items(DEPLOYMENTS, namespace=namespace, labels=_LABELS, lost=lost)
    if found is None and not namespace:
        found = reader.items(DEPLOYMENTS, namespace=DEFAULT_NAMESPACE, labels=_LABELS, lost="the operator's Deployment")
    if found:
        return Installation(found[0]["metadata"]["namespace"], tuple(found))
    return Installation(namespace or DEFAULT_NAMESPACE, None if found is None else ())
