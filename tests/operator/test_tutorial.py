"""The commands of docs/tutorial.md, in their order, with the output that the page shows.

The API server, the operator and the agent are real. The test does what the controllers and the kubelet would do.
"""

from collections.abc import Callable
from pathlib import Path

import pages
import pytest
from agent.harness import Node
from agent.standin import Kubelet
from agents import Agent, ready_node
from kubeapi import CONFIGS, Kube, Owned, eventually, node
from localcluster import Cluster
from real_agent import WHERE, document

NAME, RESOURCE = "first", "example.com/first"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.mark.usefixtures("operator")
def test_the_commands_of_the_tutorial_give_what_it_shows(  # noqa: PLR0917 fixtures
    api: Cluster,
    kube: Kube,
    owned: Owned,
    node_files: Node,
    kubelet: Kubelet,
    start: Callable[..., None],
    tmp_path: Path,
) -> None:
    def offered() -> None:
        (daemonset,) = eventually("the DaemonSet", lambda: list(owned(NAME).values()))
        Agent(kube, daemonset, WHERE).run()
        node_files.configure(document(owned, NAME))
        start(kube.get(f"{CONFIGS}/{NAME}")["metadata"]["uid"], name=NAME)
        kubelet.wait_for(RESOURCE, 2)

    def rendered() -> None:
        before = node_files.config.read_bytes()
        eventually("the edit is rendered", lambda: document(owned, NAME) != before)
        node_files.configure(document(owned, NAME))

    by_others = {
        "kubectl apply -f examples/first.yaml": offered,
        "kubectl apply -f examples/first-pod.yaml": lambda: kubelet.admit(NAME, RESOURCE, 1),
        "kubectl delete pod": lambda: kubelet.delete(NAME),
    }
    shell = pages.shell(api, tmp_path)
    ready_node(kube, node(WHERE))
    kube.create(ACCOUNTS, {"metadata": {"name": "default"}})
    for command, shown in pages.steps("tutorial.md", "tests/operator/test_tutorial.py"):
        said = shell(command)
        if said.endswith("patched\n"):
            rendered()
        for begin, act in by_others.items():
            if command.startswith(begin):
                act()
        if command.startswith(("kubectl get", "kubectl devices")):
            eventually(command, lambda c=command, s=shown: pages.plain(shell(c)) == pages.plain(s))
        else:
            assert pages.plain(said) == pages.plain(shown), command
    kube.delete(f"{ACCOUNTS}/default")
