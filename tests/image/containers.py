"""A container of the image, and the ways into it."""

import io
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo

SCRIPTS = "/docker-entrypoint-initdb.d"
TIMEOUT = 90  # seconds for a first start on a busy machine


@dataclass
class Server:
    """A container of the image, and the way into its database."""

    container: Any
    password: str
    user: str = "postgres"
    database: str = "postgres"

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Put a file into the container, whether or not it runs."""
        data = content.encode() if isinstance(content, str) else content
        with io.BytesIO() as archive:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size, entry.mode = len(data), mode
                tar.addfile(entry, io.BytesIO(data))
            self.container.put_archive("/", archive.getvalue())

    def start(self) -> "Server":
        """Start it, and wait until it is healthy."""
        self.container.start()
        self.until(lambda: self.state()["Health"]["Status"] == "healthy")
        return self

    def exit_code(self) -> int:
        """Start it, and wait until it has ended."""
        self.container.start()
        return self.container.wait(timeout=TIMEOUT)["StatusCode"]

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what must come while the container runs."""
        limit = time.monotonic() + TIMEOUT
        while not reached():
            assert self.state()["Running"], self.log()
            assert time.monotonic() < limit, self.log()
            time.sleep(0.2)

    def state(self) -> dict[str, Any]:
        self.container.reload()
        return self.container.attrs["State"]

    def log(self) -> str:
        return self.container.logs().decode()

    def run(self, *command: str) -> str:
        """Run a command in it, as its user; return what it prints."""
        code, output = self.container.exec_run(list(command))
        assert code == 0, output.decode()
        return output.decode()

    def connect(self, **different: Any) -> psycopg.Connection:
        """Connect over TCP, by default as its superuser."""
        self.container.reload()
        port = self.container.ports["5432/tcp"][0]["HostPort"]
        known = {"host": "127.0.0.1", "port": port, "user": self.user, "password": self.password}
        url = conninfo.make_conninfo(**(known | {"dbname": self.database} | different))
        return psycopg.connect(url, autocommit=True)
