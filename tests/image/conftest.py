"""Containers of the image that DBDP_TEST_IMAGE names; without it nothing here is run."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from containers import TIMEOUT, Server
from servers import IMAGE

collect_ignore_glob = [] if IMAGE else ["test_*.py"]


@pytest.fixture(scope="session")
def image() -> str:
    """The image's name."""
    return IMAGE


@pytest.fixture(scope="session")
def engine(image: str) -> Any:
    """The client of the container engine."""
    docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")
    return docker.from_env(timeout=2 * TIMEOUT)


@pytest.fixture(scope="module")
def create(engine: Any, image: str) -> Iterator[Callable[..., Server]]:
    """Create containers, with a password by default; they and their volumes are removed at the end."""
    containers: list[Any] = []

    def call(environment: dict[str, str] | None = None, **options: Any) -> Server:
        password = secrets.token_urlsafe()
        given = {"POSTGRES_PASSWORD": password} if environment is None else environment
        options = {"ports": {"5432/tcp": ("127.0.0.1", None)}} | options
        containers.append(engine.containers.create(image, environment=given, **options))
        return Server(containers[-1], password)

    yield call
    for container in containers:
        with suppress(Exception):
            container.remove(force=True, v=True)


@pytest.fixture(scope="module")
def server(create: Callable[..., Server]) -> Server:
    """A running container with a superuser, a database and a password file of its own; tests share it."""
    server = create(
        {
            "POSTGRES_PASSWORD_FILE": "/run/secrets/password",
            "POSTGRES_USER": "keeper",
            "POSTGRES_DB": "clinic",
            "POSTGRES_INITDB_ARGS": "--locale-provider=icu --icu-locale=de-DE",
        }
    )
    server.user, server.database = "keeper", "clinic"
    server.put("/run/secrets/password", server.password + "\n", 0o444)
    return server.start()
