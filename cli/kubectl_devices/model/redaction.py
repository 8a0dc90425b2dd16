"""Takes secrets out of objects and logs before they leave the cluster. Pure.

Secrets are never read. What remains are values that somebody wrote where they do not belong.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

REMOVED: Final = "(removed)"
_DROPPED: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
"""The second is a copy of the object, with everything that is removed elsewhere."""
_SECRET_NAME: Final = re.compile(
    r"token|secret|passw|credential|api[_-]?key|access[_-]?key|private[_-]?key|authorization", re.IGNORECASE
)
_HARMLESS: Final = frozenset(
    {"automountServiceAccountToken", "imagePullSecrets", "secretName", "tokenExpirationSeconds"}
)
_PATTERNS: Final = (
    (re.compile(r"(://[^/\s:@]+):[^/\s@]+@"), rf"\1:{REMOVED}@"),  # a password in a URL
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {REMOVED}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"), REMOVED),  # a JSON web token
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), REMOVED),
    (
        re.compile(rf"((?:{_SECRET_NAME.pattern})[A-Za-z0-9_-]*[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]+", re.IGNORECASE),
        rf"\1{REMOVED}",
    ),
)


def text(given: str) -> str:
    """A log or a message."""
    for pattern, instead in _PATTERNS:
        given = pattern.sub(instead, given)
    return given


def value(given: Any) -> Any:
    """An object of the API as JSON, with its structure."""
    if isinstance(given, Mapping):
        if _names_a_secret(given):
            return {k: REMOVED if k == "value" else value(v) for k, v in given.items()}
        return {key: _field(str(key), item) for key, item in given.items() if key not in _DROPPED}
    if isinstance(given, list | tuple):
        return [value(item) for item in given]
    return text(given) if isinstance(given, str) else given


def _field(key: str, item: Any) -> Any:
    if isinstance(item, str) and key not in _HARMLESS and _SECRET_NAME.search(key):
        return REMOVED
    return value(item)


def _names_a_secret(given: Mapping[str, Any]) -> bool:
    """An environment variable, such as {name: API_TOKEN, value: …}."""
    return isinstance(given.get("value"), str) and bool(_SECRET_NAME.search(str(given.get("name", ""))))
