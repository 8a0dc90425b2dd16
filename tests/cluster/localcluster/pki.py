"""The cluster's certificate authority, its certificates, and the kubeconfigs made of them."""

import base64
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from localcluster import files
from localcluster.processes import run
from localcluster.profile import Profile, node_name

_DAYS = "3650"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

# file name -> subject. The API server grants rights by these names and groups.
_CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "kubelet-client": "/CN=kube-apiserver-kubelet-client",
    "front-proxy": "/CN=front-proxy-client",
}


class Pki:
    """Certificates in `folder`; each is made when it is missing and kept from then on."""

    def __init__(self, folder: Path, profile: Profile) -> None:
        self.folder = folder
        self.profile = profile

    def file(self, name: str) -> Path:
        return self.folder / name

    def make_cluster(self) -> None:
        if self.file("complete").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        ca = ("-keyout", self.file("ca.key"), "-out", self.file("ca.crt"))
        run(["openssl", "req", "-x509", *_KEY, *ca, "-days", _DAYS, "-subj", "/CN=local-cluster"])
        signer = self.file("service-accounts.key")
        run(["openssl", "genpkey", "-algorithm", "EC", *_KEY[2:4], "-out", signer])
        run(["openssl", "pkey", "-in", signer, "-pubout", "-out", self.file("service-accounts.pub")])
        service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        names = ["localhost", *service, "kubernetes.default.svc.cluster.local"]
        self._certificate(
            "apiserver",
            subject="/CN=kube-apiserver",
            names=names,
            addresses=["127.0.0.1", self.profile.gateway, self.profile.api_service],
        )
        for name, subject in _CLIENTS.items():
            self._certificate(name, subject=subject)
        self.file("complete").touch()

    def make_node(self, index: int) -> None:
        name = node_name(index)
        if not self.file(f"{name}.crt").exists():
            self._certificate(
                name,
                subject=f"/O=system:nodes/CN=system:node:{name}",
                names=[name],
                addresses=[self.profile.node_address(index), "127.0.0.1"],
            )

    def write_kubeconfig(self, user: str, *, server: str, target: Path) -> None:
        """A kubeconfig with everything inline, readable by its owner alone."""
        name = f"device-operator-{self.profile.name}"
        certificate = {
            "client-certificate-data": self._inline(f"{user}.crt"),
            "client-key-data": self._inline(f"{user}.key"),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": server, "certificate-authority-data": self._inline("ca.crt")},
                }
            ],
            "users": [{"name": user, "user": certificate}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
        files.write(target, json.dumps(document, indent=1), mode=0o600)

    def _inline(self, name: str) -> str:
        return base64.b64encode(self.file(name).read_bytes()).decode()

    def _certificate(
        self, name: str, *, subject: str, names: Sequence[str] = (), addresses: Sequence[str] = ()
    ) -> None:
        alternatives = [*(f"DNS:{each}" for each in names), *(f"IP:{each}" for each in addresses)]
        lines = ["extendedKeyUsage=serverAuth,clientAuth"]
        if alternatives:
            lines.append(f"subjectAltName={','.join(alternatives)}")
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            request, extensions = Path(scratch) / "request", Path(scratch) / "extensions"
            extensions.write_text("\n".join(lines) + "\n")
            run(["openssl", "req", *_KEY, "-keyout", self.file(f"{name}.key"), "-out", request, "-subj", subject])
            authority: list[str | Path] = ["-CA", self.file("ca.crt"), "-CAkey", self.file("ca.key"), "-CAcreateserial"]
            finished = Path(scratch) / "certificate"
            sign = ["openssl", "x509", "-req", "-in", request, *authority, "-out", finished, "-days", _DAYS]
            run([*sign, "-extfile", extensions])
            finished.rename(self.file(f"{name}.crt"))
