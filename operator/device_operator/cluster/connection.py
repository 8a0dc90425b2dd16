"""Address of the API server and credentials: from the pod, or from a kubeconfig.

The `kubernetes` package reads the configuration (in-cluster, kubeconfig, exec plug-ins) and renews credentials;
nothing else of it is used.
"""

import ssl
from dataclasses import dataclass, field

import yaml
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.configuration import Configuration

from device_operator.runtime import errors


@dataclass(slots=True)
class Connection:
    """Address and credentials. The credentials are read again for each request."""

    configuration: Configuration
    ssl_context: ssl.SSLContext | None = field(init=False)

    def __post_init__(self) -> None:
        self.ssl_context = _ssl_context(self.configuration)

    @property
    def server(self) -> str:
        return str(self.configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name in the certificate of the server, where it differs from the address."""
        name = self.configuration.tls_server_name
        return str(name) if name else None

    async def authorization(self) -> str | None:
        """The value of the Authorization header: in a pod the token file, at most a minute old."""
        # a bound token is replaced in its file; the loader of `kubernetes` reads it again
        key = await self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return str(key) if key else None


async def connect(*, kubeconfig: str = "", context: str = "") -> Connection:
    """By `kubeconfig`, or by the files of the pod, or by the kubeconfig that kubectl would use.

    Raises:
        errors.UsageError: there is no usable configuration.
    """
    configuration: Configuration = Configuration()
    try:
        if not kubeconfig and not context:
            try:
                kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except kubernetes_config.ConfigException:
                await kubernetes_config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig or None, context=context or None, client_configuration=configuration
            )
        return Connection(configuration)
    except (kubernetes_config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        text = f"no usable cluster configuration: {error}; name one with --kubeconfig and --context"
        raise errors.UsageError(text) from error


def _ssl_context(configuration: Configuration) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https://"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    return context
