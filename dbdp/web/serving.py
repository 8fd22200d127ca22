"""Serves the page, to this machine alone."""

import ipaddress
import resource
import socket
from collections.abc import Callable

import uvicorn

from dbdp.web.app import create

_MOST_CONNECTIONS = 64


def serve(target: str, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the page of a database server until interrupted.

    Parameters
    ----------
    host, port : where it listens; port 0 takes one that is free
    announce : is given the page's address

    Raises
    ------
    ValueError
        If the host is no loopback address.
    OSError
        If the port is taken.
    """
    listening = listen(host, port)
    bound = listening.getsockname()[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # passwords are in this process's memory
    config = uvicorn.Config(
        create(target, cookie=f"dbdp_web_{bound}"),
        access_log=False,  # addresses name datasets
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=5,
    )
    announce(f"http://{host if ':' not in host else 'localhost'}:{bound}/")
    uvicorn.Server(config).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address of this machine's own."""
    if not _is_loopback(host):
        raise ValueError(
            f"host {host!r} is no address of this machine alone; dbdp web listens on 127.0.0.1 or ::1 alone. "
            "From another machine, forward a port: ssh -L 8433:127.0.0.1:8433 HOST"
        )
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise OSError(f"port {port} of {host} cannot be used: {error.strerror}; give another one by --port") from None
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
