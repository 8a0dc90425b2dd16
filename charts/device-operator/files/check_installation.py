"""What `helm test` runs: are both kinds served, and is the operator's Deployment available?"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SERVER = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
KINDS = {"DevicePluginConfig", "NodeDeviceInventory"}
DEPLOYMENT = f"/apis/apps/v1/namespaces/{os.environ['NAMESPACE']}/deployments/{os.environ['DEPLOYMENT']}"
SECONDS = 90


def get(path: str) -> dict[str, Any]:
    token = Path(ACCOUNT, "token").read_text()
    request = urllib.request.Request(SERVER + path, headers={"Authorization": f"Bearer {token}"})
    trust = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
        return dict(json.load(answer))


def problem() -> str | None:
    """One line on what is amiss, or None."""
    served = {r["kind"] for r in get("/apis/device-operator.io/v1alpha1")["resources"]}
    if missing := KINDS - served:
        return f"not served: {', '.join(sorted(missing))}; are the CustomResourceDefinitions installed (crds.enabled)?"
    deployment = get(DEPLOYMENT)
    conditions = {c["type"]: c for c in deployment.get("status", {}).get("conditions", [])}
    available = conditions.get("Available", {"status": "Unknown", "message": "no condition Available yet"})
    if available["status"] != "True":
        return f"the operator is not available: {available['message']}"
    return None


deadline = time.monotonic() + SECONDS
while True:
    try:
        found = problem()
    except (OSError, urllib.error.URLError) as error:
        found = f"the API server does not answer: {error}"
    if found is None:
        print("both kinds are served and the operator is available")
        sys.exit(0)
    if time.monotonic() > deadline:
        sys.exit(found)
    time.sleep(2)
