"""Serve the page on this machine only."""

import ipaddress
import resource
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dbdp.interfaces.web.app import create

_MOST_CONNECTIONS = 64
REQUEST_SECONDS = 20.0  # from the opening of a connection, or its last response, to the end of the next request


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request has not arrived in time.

    The server itself waits without limit for the headers and the body of a request, so that a few silent or slow
    connections would block all others (`_MOST_CONNECTIONS`).
    """

    _deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
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
    "access_log": False,  # addresses name datasets
    "server_header": False,
    "proxy_headers": False,
    "limit_concurrency": _MOST_CONNECTIONS,
    "timeout_graceful_shutdown": 5,
}


def serve(target: str, host: str, port: int, announce: Callable[[str], None], *, with_metrics: bool = False) -> None:
    """Serve the page of a database server until interrupted.

    Parameters
    ----------
    target : str
        URL of the database server.
    host : str
        A loopback address.
    port : int
        Port to listen on; 0 chooses a free one.
    announce : callable
        Called with the page's address.
    with_metrics : bool
        Whether `/metrics` has statistics for Prometheus.

    Raises
    ------
    ValueError
        If the host is not a loopback address.
    OSError
        If the port is in use.
    """
    listening = listen(host, port)
    bound = listening.getsockname()[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # passwords are in this process's memory
    app = create(target, cookie=f"dbdp_web_{bound}", with_metrics=with_metrics)
    config = uvicorn.Config(app, log_level="warning", **SETTINGS)
    announce(f"http://{host if ':' not in host else 'localhost'}:{bound}/")
    uvicorn.Server(config).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a loopback address; port 0 chooses a free one.

    Raises
    ------
    ValueError
        If the host is not a loopback address.
    OSError
        If the port is in use.
    """
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
