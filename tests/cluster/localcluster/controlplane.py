"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as processes of the machine's own namespaces.

etcd listens on loopback only. This machine reaches the API server at 127.0.0.1, the nodes at the bridge's address.
So a cluster with nodes has an API server that listens everywhere, behind TLS and RBAC.
"""

import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from localcluster import binaries
from localcluster.pki import Pki
from localcluster.processes import PidFiles, daemon_environment, spawn, succeeds, wait_until
from localcluster.profile import Profile
from localcluster.services import Service, answers_http, answers_https, settle, wait_for_answers


class ControlPlane:
    def __init__(self, profile: Profile, *, state: Path, pids: PidFiles, pki: Pki) -> None:
        self.profile = profile
        self.state = state
        self.pids = pids
        self.pki = pki
        self.kubeconfig = state / "admin.kubeconfig"

    def write_kubeconfigs(self) -> None:
        for user in ("admin", "controller-manager", "scheduler"):
            target = self.state / f"{user}.kubeconfig"
            self.pki.write_kubeconfig(user, server=self.profile.server, target=target)

    def services(self) -> list[Service]:
        """The services that the profile wants, in the order of their start."""
        profile = self.profile
        answers = {
            "etcd": lambda: answers_http(profile.etcd_port, "/health"),
            "apiserver": self._api_answers,
            "controller-manager": lambda: answers_https(profile.controller_manager_port, "/healthz"),
            "scheduler": lambda: answers_https(profile.scheduler_port, "/healthz"),
        }
        if not profile.controller_manager:
            del answers["controller-manager"]
        if profile.control_plane_only:
            del answers["scheduler"]
        return [
            Service(name=name, log=self.state / "logs" / f"{name}.log", pids=self.pids, answers=question)
            for name, question in answers.items()
        ]

    def start_storage_and_api(self) -> None:
        etcd, api = self.services()[:2]
        self._start(etcd, self._etcd(), ports=(self.profile.etcd_port, self.profile.etcd_peer_port))
        self._start(api, self._apiserver(), ports=(self.profile.api_port,))

    def wait_for_api(self) -> None:
        wait_for_answers(self.services()[:2])

    def start_controllers(self) -> None:
        """Call it when the API server answers: otherwise the controller manager ends."""
        commands = {"controller-manager": self._controller_manager, "scheduler": self._scheduler}
        for service in self.services()[2:]:
            self._start(service, commands[service.name]())

    def end_all_but_storage(self) -> None:
        """Kills them: their state is in etcd, and with SIGTERM they would wait for the watches of nodes that end too."""
        for name in ("scheduler", "controller-manager", "apiserver"):
            self.pids.end(name, signal.SIGKILL)

    def end_storage(self) -> None:
        self.pids.end("etcd", signal.SIGTERM)

    def _api_answers(self) -> bool:
        ready = ["get", "--raw", "/readyz"]
        return succeeds([binaries.path("kubectl"), "--kubeconfig", self.kubeconfig, "--request-timeout=5s", *ready])

    def _start(self, service: Service, command: list[str | Path], *, ports: Sequence[int] = ()) -> None:
        settle(service)
        if not service.runs:
            for port in ports:
                self._check_port(port)
            pid = spawn(command, env=daemon_environment(self.state), log=service.log, cwd=self.state)
            self.pids.record(service.name, pid)

    def _check_port(self, port: int) -> None:
        """Waits for the port: a service that has just ended may hold it for a moment. Another program's port is an error."""
        wait_until(
            lambda: _is_free(port),
            seconds=5,
            what=f"port {port}, which the cluster {self.profile.name!r} needs and another program has",
            explain=lambda: "if it is another cluster, of the same slot: stop that one, or choose another name",
        )

    def _etcd(self) -> list[str | Path]:
        client = f"http://127.0.0.1:{self.profile.etcd_port}"
        peer = f"http://127.0.0.1:{self.profile.etcd_peer_port}"
        return [
            binaries.path("etcd"),
            f"--data-dir={self.state / 'etcd'}",
            "--unsafe-no-fsync",  # a test's cluster may lose its last writes when the machine dies
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _apiserver(self) -> list[str | Path]:
        profile, file = self.profile, self.pki.file
        if profile.control_plane_only:
            # Endpoints of the Service `kubernetes` may not be loopback addresses, and nobody needs them here.
            address = ["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"]
        else:
            address = ["--bind-address=0.0.0.0", f"--advertise-address={profile.gateway}"]
        return [
            binaries.path("kube-apiserver"),
            *address,
            f"--secure-port={profile.api_port}",
            f"--etcd-servers=http://127.0.0.1:{profile.etcd_port}",
            f"--service-cluster-ip-range={profile.service_net}",
            "--allow-privileged",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--client-ca-file={file('ca.crt')}",
            f"--tls-cert-file={file('apiserver.crt')}",
            f"--tls-private-key-file={file('apiserver.key')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={file('service-accounts.pub')}",
            f"--service-account-signing-key-file={file('service-accounts.key')}",
            f"--kubelet-certificate-authority={file('ca.crt')}",
            f"--kubelet-client-certificate={file('kubelet-client.crt')}",
            f"--kubelet-client-key={file('kubelet-client.key')}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={file('ca.crt')}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={file('front-proxy.crt')}",
            f"--proxy-client-key-file={file('front-proxy.key')}",
            *profile.apiserver_args,
        ]

    def _as_user(self, user: str) -> list[str]:
        kubeconfig = self.state / f"{user}.kubeconfig"
        roles = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return [*(f"--{role}={kubeconfig}" for role in roles), "--bind-address=127.0.0.1", "--leader-elect=false"]

    def _controller_manager(self) -> list[str | Path]:
        file = self.pki.file
        return [
            binaries.path("kube-controller-manager"),
            *self._as_user("controller-manager"),
            f"--secure-port={self.profile.controller_manager_port}",
            f"--service-account-private-key-file={file('service-accounts.key')}",
            f"--root-ca-file={file('ca.crt')}",
            f"--cluster-signing-cert-file={file('ca.crt')}",
            f"--cluster-signing-key-file={file('ca.key')}",
            "--use-service-account-credentials",
            "--kube-api-qps=300",  # each controller asks for a token at its start: seconds, at the default rate
            "--kube-api-burst=300",
            "--node-monitor-grace-period=20s",
            "--node-monitor-period=2s",
            *self.profile.controller_manager_args,
        ]

    def _scheduler(self) -> list[str | Path]:
        return [
            binaries.path("kube-scheduler"),
            *self._as_user("scheduler"),
            f"--secure-port={self.profile.scheduler_port}",
            *self.profile.scheduler_args,
        ]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
