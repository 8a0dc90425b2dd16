"""Makes GPUs, their samples, and a table that offers them."""

from device_agent.nvml.model import Gpu, GpuSample, Mig, NvmlView
from device_agent.table.holders import Holder
from unit.table.samples import Steps, resource, unit

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


def gpu(n: int, *, model: str = "NVIDIA A100-SXM4-40GB", **fields) -> Gpu:
    values = {"memory_mib": 40960, "compute_capability": "8.0", "architecture": "ampere", "mig_mode": False}
    return Gpu(uuid=f"GPU-{n}", index=n, minor=n, pci_address=f"0000:0{n}:00.0", model=model, **values | fields)


def mig(parent: int, n: int, profile: str = "1g.5gb", *, memory_mib: int = 4864) -> Mig:
    return Mig(uuid=f"MIG-{parent}-{n}", index=n, profile=profile, gi=n + 1, ci=0, memory_mib=memory_mib)


def view(*gpus: Gpu, driver: str = "580.95.05", cuda: str = "13.0") -> NvmlView:
    return NvmlView(gpus=gpus, driver_version=driver, cuda_version=cuda, epoch=1)


def whole(n: int, *, name: str = GPU, **fields):
    attributes = {"uuid": f"GPU-{n}", "pci.class": "030200"}
    return unit(f"GPU-{n}", name=name, hardware=f"devices/pci0000:00/0000:0{n}:00.0", source="nvml",
                attributes=attributes, **fields)  # fmt: skip


def partition(parent: int, n: int, profile: str = "1g.5gb", *, name: str, entry: str | None = None, **fields):
    attributes = {"uuid": f"MIG-{parent}-{n}", "parentUuid": f"GPU-{parent}", "profile": profile}
    return unit(attributes["uuid"], name=name, entry=entry, hardware=f"nvml:{attributes['uuid']}", source="nvml",
                attributes=attributes, **fields)  # fmt: skip


def offering(*units, holders=None):
    """The snapshot of a table that offers the units. `holders`: resource -> id -> pods."""
    names = dict.fromkeys(u.entry for u in units)
    steps = Steps(*(resource(name) for name in names))
    steps.scan(*units)
    named = {
        name: {i: tuple(Holder("team", pod, "main") for pod in pods) for i, pods in ids.items()}
        for name, ids in (holders or {}).items()
    }
    steps.list(named)
    return steps.table.snapshot()


def sample(uuid: str, **values: float) -> GpuSample:
    return GpuSample(uuid=uuid, **values)
