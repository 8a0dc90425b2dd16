"""A fake API server for one kind of object: what the agent's reporter needs, and which requests are not allowed.

It has the sub-resource status with merge patches, and answers with 404 and 409. A test can order any other answer. The
operator's level uses a real one.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OBJECTS = "/apis/device-operator.io/v1alpha1/nodedeviceinventories"


class ApiServer:
    """`written`: the status patches taken, in order. `orders`: answers, as (status, headers), given to the next requests instead of the true ones."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[float, str, str, Any]] = []
        self.written: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.orders: list[tuple[int, dict[str, str]]] = []
        self.down = False
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
                raw = json.dumps(body).encode()
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def handle_request(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
                self.path = self.path.removesuffix("?resourceVersion=0")  # its cache is always up to date
                outer.requests.append((time.monotonic(), self.command, self.path, body))
                outer.tokens.add(self.headers.get("Authorization", ""))
                if outer.down:
                    self.answer(503, {"message": "down for a while"})
                elif outer.orders:
                    status, headers = outer.orders.pop(0)
                    self.answer(status, {"message": f"ordered {status}"}, headers)
                else:
                    self.answer(*outer.act(self.command, self.path, self.headers["Content-Type"], body))

            do_GET = do_POST = do_PATCH = handle_request  # noqa: N815 - names of the base class

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def act(self, method: str, path: str, kind: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if method == "POST" and path == OBJECTS:
            name = body["metadata"]["name"]
            if name in self.objects:
                return 409, {"message": f"{name} already exists"}
            # a status given at creation is dropped, as the kind has it as a sub-resource
            self.objects[name] = {k: v for k, v in body.items() if k != "status"}
            return 201, self.objects[name]
        name, _, rest = path.removeprefix(f"{OBJECTS}/").partition("/")
        if method == "GET" and not rest:
            return (200, self.objects[name]) if name in self.objects else (404, {"message": f"{name} not found"})
        if method != "PATCH" or rest != "status" or kind != "application/merge-patch+json":
            return 405, {"message": f"{method} {path} {kind}"}
        if name not in self.objects:
            return 404, {"message": f"{name} not found"}
        if body.keys() != {"status"}:
            return 422, {"message": "only the status is written"}
        _merge(self.objects[name], body)
        self.written.append(body["status"])
        return 200, self.objects[name]


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            _merge(target[key], value)
        else:
            target[key] = value
