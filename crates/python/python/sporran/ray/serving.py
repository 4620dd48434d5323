"""The server as a deployment of Ray Serve."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from ..errors import InputError, WorkError
from . import cpus

__all__ = ["serve"]

_ADDRESS = re.compile(r"listening on (http://\S+)")
_STOP = 10.0
"""Seconds that a server has to end its requests."""
_HOP_BY_HOP = {
    "connection", "host", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
}  # fmt: skip
"""Headers of one connection, which are not forwarded."""


class _Server:
    """``sporran serve`` in a separate process, at a free port of the loopback address. It ends with this process."""

    def __init__(self, arguments: list[str], folder: str, threads: int) -> None:
        command = [sys.executable, "-m", "sporran._child", "--threads", str(threads), "serve", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", "0"], cwd=folder, stdin=pipe, stderr=pipe, text=True
        )
        self.address = ""
        self._last: deque[str] = deque(maxlen=20)
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self._ready.wait()
        if not self.address:
            raise WorkError("sporran serve ended: " + "".join(self._last).strip())

    def _read(self) -> None:
        """Reads what the server logs, and writes it to this process's log."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._last.append(line)
            sys.stderr.write(line)
            found = None if self.address else _ADDRESS.search(line)
            if found:
                self.address = found[1]
                self._ready.set()
        self._ready.set()

    def stop(self) -> None:
        """Ends the server after the requests that it has begun."""
        self.process.terminate()
        try:
            self.process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Replica:
    """A replica: a server, and the requests that are forwarded to it."""

    def __init__(self, arguments: list[str], folder: str) -> None:
        self.server = _Server(arguments, folder, cpus.assigned())
        self._session: Any = None

    @property
    def session(self) -> Any:
        """The connections to the server, which belong to the event loop of the requests."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    async def __call__(self, request: Any) -> Any:
        import aiohttp
        from starlette.responses import PlainTextResponse, StreamingResponse
        from yarl import URL

        url = URL(self.server.address + _path(request.scope), encoded=True)
        headers = [(name, value) for name, value in request.headers.items() if name not in _HOP_BY_HOP]
        try:
            answer = await self.session.request(
                request.method, url, headers=headers, data=await request.body(), allow_redirects=False
            )
        except aiohttp.ClientError as error:
            return PlainTextResponse(f"the server does not answer: {error}", status_code=502)

        async def parts() -> AsyncIterator[bytes]:
            # A client that goes away ends this generator, and so the request.
            try:
                async for part in answer.content.iter_any():
                    yield part
            finally:
                answer.close()

        response = StreamingResponse(parts(), status_code=answer.status)
        kept = [(name, value) for name, value in answer.raw_headers if name.lower().decode() not in _HOP_BY_HOP]
        response.raw_headers = [(name.lower(), value) for name, value in kept]
        return response

    async def check_health(self) -> None:
        """Fails if the server does not answer, and Ray Serve starts another replica."""
        async with self.session.get(self.server.address + "/health") as answer:
            if answer.status != 200:
                raise WorkError(f"/health: expected the status 200, found {answer.status}")

    def __del__(self) -> None:
        server = getattr(self, "server", None)
        if server is not None:
            server.stop()


def _path(scope: dict[str, Any]) -> str:
    """The path and the query of a request, as the client wrote them, without the prefix of the deployment."""
    path = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("ascii")
    prefix = scope.get("root_path", "").rstrip("/")
    if prefix and path.startswith(prefix):
        path = path[len(prefix) :]
    query = scope.get("query_string", b"").decode("ascii")
    return (path or "/") + ("?" + query if query else "")


def _arguments(served: tuple[str | os.PathLike[str], ...], options: dict[str, Any]) -> list[str]:
    """The command line of ``sporran serve``."""
    arguments = []
    for name, value in options.items():
        if name in ("host", "port"):
            raise InputError(f"{name}: expected the options of Ray Serve; a replica listens on its own node only")
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            arguments += [option] if value else []
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        arguments += [f"{option}={os.fspath(one) if isinstance(one, os.PathLike) else one}" for one in values]
    return [*arguments, *(os.fspath(one) for one in served)]


def serve(
    *served: str | os.PathLike[str],
    replicas: int = 1,
    num_cpus: float = 1,
    max_ongoing_requests: int = 256,
    name: str = "sporran",
    route_prefix: str = "/",
    **options: Any,
) -> Any:
    """Serves documents, configs and models, as ``sporran serve``, by ``replicas`` on the nodes of a Ray cluster.

    ``served`` are the arguments of the command, and ``options`` its options: ``embed="models/all-MiniLM-L6-v2"`` is
    ``--embed models/all-MiniLM-L6-v2``.
    Each replica is a separate server process with ``num_cpus`` threads, to which requests and streams are forwarded. Gives
    the handle of the deployment; ``ray.serve.delete(name)`` ends it. All nodes need the working folder of the caller, at the same
    path.
    """
    from ray import serve as ray_serve

    deployment = ray_serve.deployment(
        name=name,
        num_replicas=replicas,
        ray_actor_options={"num_cpus": num_cpus},
        max_ongoing_requests=max_ongoing_requests,
    )(Replica)
    application = deployment.bind(_arguments(served, options), os.getcwd())
    return ray_serve.run(application, name=name, route_prefix=route_prefix)
