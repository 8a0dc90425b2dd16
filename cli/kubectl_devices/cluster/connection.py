"""From the flags and the kubeconfig to the API server, as kubectl does it."""

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from kubectl_devices import errors
from kubectl_devices.cluster.api import Api

_IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_OBJECT: Final = re.compile(r"^(?:<[^>]*>|HTTPS?Connection(?:Pool)?\([^)]*\)): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Flags of kubectl; empty: as the kubeconfig says. `as_user`, `as_groups`: impersonation. `timeout`: seconds."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Connection:
    """`namespace`: of pods that are named without one."""

    api: Api
    namespace: str


def connect(target: Target) -> Connection:
    """The connection; no request is sent.

    Raises:
        errors.UsageError: there is no usable kubeconfig.
    """
    # half a second to load: only for commands that need a cluster
    import urllib3  # noqa: PLC0415
    from kubernetes import client, config  # noqa: PLC0415

    configuration = client.Configuration()
    heard = _Heard(logging.ERROR)
    logging.getLogger().addHandler(heard)
    try:
        namespace = _load(config, configuration, target)
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.UsageError(f"no usable kubeconfig: {error}; name one with --kubeconfig and --context") from error
    except Exception as error:
        if type(error).__module__.startswith("yaml"):
            raise errors.UsageError(f"the kubeconfig is not YAML: {' '.join(str(error).split())}") from error
        raise
    finally:
        logging.getLogger().removeHandler(heard)
    if heard.told:  # such as a program for credentials that is not there: the package goes on without
        raise errors.UsageError(f"the kubeconfig gives no credentials: {heard.told[-1]}")
    if not str(configuration.host).startswith(("https://", "http://")):
        raise errors.UsageError(f"the kubeconfig's server {configuration.host!r} must begin with https://")
    configuration.retries = urllib3.Retry(total=2, connect=2, read=0, redirect=0, other=0, status=0)
    headers = {"Impersonate-User": target.as_user} if target.as_user else {}
    transport = _Transport(client.ApiClient(configuration), headers, groups=target.as_groups)
    return Connection(Api(transport, timeout=target.timeout), target.namespace or namespace or "default")


def _load(config: Any, configuration: Any, target: Target) -> str:
    """Fills `configuration`. Returns the namespace of the context."""
    named = target.kubeconfig or os.environ.get("KUBECONFIG", "")
    files = [path for path in (named or str(Path("~/.kube/config").expanduser())).split(os.pathsep) if path]
    present = [path for path in files if Path(path).is_file()]
    if target.kubeconfig and not present:
        raise errors.UsageError(f"--kubeconfig {target.kubeconfig}: there is no such file")
    if not present and not target.context and _IN_CLUSTER.is_file():
        config.load_incluster_config(client_configuration=configuration)
        return _IN_CLUSTER.read_text(encoding="utf-8").strip()
    if not present:
        raise errors.UsageError(f"no kubeconfig: there is no file {' or '.join(files)}; name one with --kubeconfig")
    path = os.pathsep.join(present)
    config.load_kube_config(path, context=target.context or None, client_configuration=configuration)
    contexts, active = config.list_kube_config_contexts(path)
    chosen = next((c for c in contexts if c["name"] == target.context), active) if target.context else active
    return str(chosen.get("context", {}).get("namespace") or "")


class _Heard(logging.Handler):
    """Keeps what the `kubernetes` package only logs, instead of raising it."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(" ".join(record.getMessage().split()))


class _Transport:
    """`api.Transport` over the client of the `kubernetes` package."""

    def __init__(self, client: Any, headers: Mapping[str, str], *, groups: tuple[str, ...]) -> None:
        self._client = client
        self._headers = dict(headers)
        self._groups = groups

    def __call__(
        self, method: str, path: str, *, query: Mapping[str, str], body: object, content_type: str, timeout: float
    ) -> tuple[int, bytes, str]:
        import urllib3  # noqa: PLC0415
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415

        headers: Any = urllib3.HTTPHeaderDict({**self._headers, "Accept": "*/*", "Content-Type": content_type})
        for group in self._groups:
            headers.add("Impersonate-Group", group)
        authorization: dict[str, str] = {}
        self._client.update_params_for_auth(authorization, [], ["BearerToken"], path, method, body)
        headers.extend(authorization)
        url = f"{self._client.configuration.host}{path}"
        if query:
            url = f"{url}?{urlencode(query)}"
        try:
            # the pool of connections of the client; its own request() cannot send a header twice
            answer = self._client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=min(timeout, 10.0), read=timeout),
                retries=self._client.configuration.retries,
            )
        except (urllib3.exceptions.HTTPError, ApiException, OSError, ValueError) as error:
            host = self._client.configuration.host
            raise errors.UnreachableError(f"the API server {host} does not answer: {_cause(error)}") from error
        return int(answer.status), bytes(answer.data), str(answer.headers.get("Date", ""))


def _cause(error: BaseException) -> str:
    """The innermost cause in one line: urllib3 wraps it several times, and puts its own objects in front."""
    reason = getattr(error, "reason", None)
    inner = reason if isinstance(reason, BaseException) else error
    return _OBJECT.sub("", " ".join(str(inner).split()))
