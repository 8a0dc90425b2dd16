"""Which container has which ids, as in the kubelet's checkpoint: it outlives the kubelet, and PodResources reads it."""

from device_agent.kubelet.proto import podresources_pb2 as pr

Container = tuple[str, str, str]
"""(namespace, pod, container)."""


class Checkpoint(dict[Container, dict[str, list[str]]]):
    """Container -> resource -> ids."""

    def held(self, resource: str) -> set[str]:
        return {i for resources in self.values() for i in resources.get(resource, ())}

    def assign(self, container: Container, resource: str, ids: list[str]) -> None:
        self.setdefault(container, {}).setdefault(resource, []).extend(ids)

    def forget(self, pod: str) -> None:
        for key in [k for k in self if k[1] == pod]:
            del self[key]

    def pod_resources(self) -> pr.ListPodResourcesResponse:
        """The answer of List."""
        answer = pr.ListPodResourcesResponse()
        for (namespace, pod, container), resources in self.items():
            message = answer.pod_resources.add(name=pod, namespace=namespace)
            part = message.containers.add(name=container)
            for resource, ids in resources.items():
                for one in ids:  # the kubelet makes one of each NUMA node
                    part.devices.add(resource_name=resource, device_ids=[one])
        return answer
