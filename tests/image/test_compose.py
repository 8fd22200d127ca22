"""The compose file: a database on loopback alone, and a demo that trains in it."""

import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

FOLDER = Path(__file__).parents[2] / "docker"
PASSWORD = secrets.token_hex(12)


@pytest.fixture(scope="module")
def compose(engine: object, image: str) -> Iterator[Callable[..., str]]:
    """Run compose in a project of its own, on a port that is free; everything goes at the end."""
    command = ["docker", "compose", "--project-name", f"dbdp-{secrets.token_hex(4)}"]
    environment = os.environ | {"DBDP_IMAGE": image, "DBDP_PASSWORD": PASSWORD, "DBDP_PORT": "0"}
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker has no compose")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*command, *arguments],
            cwd=FOLDER,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    yield run
    run("--profile", "demo", "down", "--volumes", "--timeout", "30")


@pytest.fixture(scope="module")
def address(compose: Callable[..., str]) -> str:
    """Where the database is, once it is healthy."""
    compose("up", "--detach", "--wait", "--no-build")
    return compose("port", "database", "5432").strip()


def test_the_database_is_published_on_loopback_alone(address):
    host, _, port = address.partition(":")
    assert host == "127.0.0.1"
    with psycopg.connect(host=host, port=int(port), user="postgres", password=PASSWORD) as connection:
        assert connection.execute("select extname from pg_extension where extname = 'dbdp'").fetchone() == ("dbdp",)


def test_the_demo_trains_in_it(address, compose):
    printed = compose("run", "--rm", "-T", "demo")
    assert printed.count("of the budget is left") == 1
    assert "left out: this step needs" in printed
    assert "private, trained in SQL" in printed


def test_the_password_is_no_variable_of_a_container(address, compose):
    container = compose("ps", "--quiet", "database").strip()
    shown = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True).stdout
    assert json.loads(shown)[0]["State"]["Health"]["Status"] == "healthy"
    assert PASSWORD not in shown
