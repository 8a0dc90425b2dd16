"""A document scanned on a node by a pod, as `explain` and `hardware` need it."""

import argparse
import secrets
import time
from typing import Any

from device_agent.contract.document import Document
from device_operator.spec.agent_settings import AgentSettings

from kubectl_devices import errors
from kubectl_devices.cluster import node_scan
from kubectl_devices.cluster.api import Object
from kubectl_devices.cluster.kinds import NODES
from kubectl_devices.commands import flags
from kubectl_devices.model import scan_pod
from kubectl_devices.session import Session

_SELINUX_TYPE = "container_device_plugin_t"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--image", default="", metavar="IMAGE", help="the agent's image (default: the operator's setting)"
    )
    parser.add_argument(
        "--timeout", type=flags.seconds, default=60.0, metavar="TIME", help="for the pod (default: 60s)"
    )


def on_node(session: Session, name: str, document: Document, agent: AgentSettings) -> dict[str, Any]:
    """By a pod of the agent's image on the node.

    Raises:
        errors.CliError: see `node_scan.scan`; or the image is not known.
    """
    installation = session.installation()
    image = session.options.image or agent.image or installation.flag("agent-image", "")
    if not image:
        raise errors.UsageError("the agent's image is not known, because the operator's Deployment is; give --image")
    pod = scan_pod.pod(
        name=f"device-scan-{secrets.token_hex(4)}",
        node=name,
        namespace=installation.namespace,
        image=image,
        agent=agent,
        document=document,
        selinux_type=installation.flag("agent-selinux-type", _SELINUX_TYPE),
    )
    session.out.notes([f"a pod scans {name}; it is root there, and is deleted when it has ended"])

    def config_map(created: Object) -> Object:
        return scan_pod.config_map(created, document)

    return node_scan.scan(session.api, pod, config_map, timeout=session.options.timeout, sleep=time.sleep)


def node(session: Session, name: str) -> Object:
    """The Node.

    Raises:
        errors.CliError: there is none, or the user may not get it.
    """
    return session.api.get(NODES, name)
