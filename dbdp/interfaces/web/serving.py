"""Serve the page on this machine only."""

import ipaddress
import resource
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dbdp.interfaces.web.app import create
from dbdp.interfaces.web.sign_in.database_server import DatabaseServer
from dbdp.interfaces.web.sign_in.links import in_browser
from dbdp.interfaces.web.views.page_refusals import Refusal

_MOST_CONNECTIONS = 64
REQUEST_SECONDS = 20.0  # from the opening of a connection, or its last response, to the end of the next request


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request has not arrived in time.

    The server itself waits without limit for the headers and the body of a request, so that a few silent or slow
    connections would block all others (`_MOST_CONNECTIONS`).
    """

    _deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request; no address is logged, they name datasets, and one has a token."""
        super().connection_made(transport)
        self.access_log = False
        self._wait()

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._expire)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _expire(self) -> None:
        """Close the connection, unless the request has arrived and its response is being computed."""
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.abort()


SETTINGS: dict[str, Any] = {
    "http": TimedProtocol,
    "ws": "none",
    "server_header": False,
    "proxy_headers": False,
    "limit_concurrency": _MOST_CONNECTIONS,
    "timeout_graceful_shutdown": 5,
}


def serve(
    target: str,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    opening: bool = False,
    metrics_token: str = "",
) -> None:
    """Serve the page of a database server until interrupted."""
    listening = listen(host, port)
    bound = listening.getsockname()[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # links, sessions and passwords are in this process's memory
    address = f"http://{f'[{host}]' if ':' in host else host}:{bound}/?token="
    app = create(
        target,
        cookie=f"dbdp_web_{bound}",
        metrics_token=metrics_token,
        announce=lambda token: announce(f"that link was used; the next one, for another browser: {address}{token}"),
    )
    _check(app.state.services.server)
    link = f"{address}{app.state.services.links.token}"
    config = uvicorn.Config(app, log_level="warning", **SETTINGS)
    listening.listen()  # a browser may be faster than the server's start
    announce(link)
    with in_browser(link) if opening else nullcontext():
        uvicorn.Server(config).run(sockets=[listening])


def _check(server: DatabaseServer) -> None:
    """Raise ValueError unless the database server lets in the role and has the extension."""
    try:
        server.account()
    except Refusal as refusal:
        raise ValueError(f"{refusal.title}: {refusal.text} {refusal.remedy}".strip()) from None


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a loopback address; port 0 chooses a free one."""
    if not _is_loopback(host):
        raise ValueError(
            f"host {host!r} is not a loopback address; dbdp web listens on 127.0.0.1 or ::1 only. "
            "From another machine, forward a port: ssh -L 8433:127.0.0.1:8433 HOST"
        )
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(f"port {port} of {host} cannot be used: {error.strerror}; pass another one by --port") from None
    return listening


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
