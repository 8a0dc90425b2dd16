"""What an agent is started with: the command line, the pod's environment, the driver libraries that it may load."""

from pathlib import Path

from device_agent.contract.values import dataclass
from device_agent.discovery.driver_library import DriverSetup
from device_agent.nvml.access import parse as parse_access
from device_agent.nvml.setup import Nvidia, Wanted
from device_agent.report.api_client import ApiServer
from device_agent.report.inventory import AgentIdentity
from device_agent.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the pod's environment say. `api` None: nothing is reported.

    `pod`: (namespace, name) of the agent's own pod, None outside one. `driver_access`: as the operator writes it.
    `features_dir`: node-feature-discovery's directory, None: no node labels.
    """

    config: Path
    kubelet_dir: Path
    pod_resources: Path
    host_root: Path
    listen: tuple[str, int]
    identity: AgentIdentity
    pod: tuple[str, str] | None
    api: ApiServer | None
    settings: Settings
    driver_root: Path = Path("/")
    driver_access: str = ""
    device_metrics: bool = False
    features_dir: Path | None = None

    @property
    def drivers(self) -> tuple[DriverSetup, ...]:
        """The driver libraries, one item each."""
        return (
            Nvidia(
                driver_root=self.driver_root,
                access=parse_access(self.driver_access),
                report=Wanted(metrics=self.device_metrics, features_dir=self.features_dir),
            ),
        )

    @property
    def owner(self) -> str:
        """Identifies this object's agents on a node: the names of their sockets and kept files are made from it."""
        return self.identity.config_uid or "local"
