"""pg_upgrade from the image of PostgreSQL 15 to that of a later one, as docs/docker.md describes it."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from carried_over import check_refused, check_training, facts, use
from containers import Server

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FORMER = "dbdp:15"
PLACE = "/var/lib/postgresql"
INSTALL = ("dbdp", "install", "--url", "postgresql://postgres@/postgres")


@pytest.fixture
def upgrading(engine: Any, image: str) -> Iterator[str]:
    """The image that upgrades."""
    versions = {"FORMER": FORMER, "LATER": image}
    dockerfile = "docker/upgrade.Dockerfile"
    built, _ = engine.images.build(path=str(ROOT), dockerfile=dockerfile, buildargs=versions, rm=True, forcerm=True)
    yield built.id
    engine.images.remove(built.id, force=True)


@pytest.fixture
def volumes(engine: Any) -> Iterator[list[str]]:
    """Volumes of the former cluster and of the later one."""
    volumes = [engine.volumes.create() for _ in range(2)]
    yield [volume.name for volume in volumes]
    for volume in volumes:
        with suppress(Exception):
            volume.remove(force=True)


@pytest.fixture
def container(engine: Any, volumes: list[str]) -> Iterator[Callable[..., Server]]:
    """Create containers of an image with volumes at folders; all have one password."""
    password, containers = secrets.token_urlsafe(), []

    def create(image: str, places: dict[str, str], **options: Any) -> Server:
        mounts = {volume: {"bind": folder, "mode": "rw"} for volume, folder in places.items()}
        environment = {"POSTGRES_PASSWORD": password}
        options = {"environment": environment, "ports": {"5432/tcp": ("127.0.0.1", None)}} | options
        containers.append(engine.containers.create(image, volumes=mounts, **options))
        return Server(containers[-1], password)

    yield create
    for each in containers:
        with suppress(Exception):
            each.remove(force=True)


def test_pg_upgrade_between_images_loses_nothing(container, volumes, upgrading, image):
    """pg_upgrade between images weakens no budget and loses no model."""
    former_volume, later_volume = volumes
    former = container(FORMER, {former_volume: f"{PLACE}/data"}).start()
    with former.connect() as connection:
        use(connection)
        before, version = facts(connection), connection.info.server_version
    former.container.stop(timeout=60)
    upgrade = container(upgrading, {former_volume: f"{PLACE}/former", later_volume: f"{PLACE}/data"})
    assert upgrade.exit_code() == 0, upgrade.log()
    again = container(upgrading, {former_volume: f"{PLACE}/former", later_volume: f"{PLACE}/data"})
    assert again.exit_code() == 1
    assert "pgdata exists: mount an empty volume there" in again.log()
    later = container(image, {later_volume: f"{PLACE}/data"}).start()
    with later.connect() as connection, pytest.raises(psycopg.Error, match="run `dbdp install`"):
        connection.execute("select dbdp.predict_probability(1, '{.1, .2, .3}'::float8[])")
    assert f"no longer from /usr/share/postgresql/{version // 10000}/dbdp" in later.run(*INSTALL)
    with later.connect() as connection:
        assert connection.info.server_version // 10000 > version // 10000
        assert facts(connection) == before
        check_refused(connection)
        check_training(connection)
        assert facts(connection) != before
