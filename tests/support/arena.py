"""Fixtures of the attacks: roles with a login, and a registered table."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from attacker import Arena, arena_of, registered


@pytest.fixture(scope="module")
def arena(server_url: str) -> Iterator[Arena]:
    """The roles on the server of the tests."""
    with arena_of(server_url) as made:
        yield made


@pytest.fixture
def admin(arena: Arena) -> Iterator[psycopg.Connection]:
    """A session of the superuser."""
    with arena.admin() as session:
        yield session


@pytest.fixture
def analyst(arena: Arena) -> psycopg.Connection:
    """The attacker's session."""
    return arena.session("analyst")


@pytest.fixture
def owner(arena: Arena) -> psycopg.Connection:
    """A session of a data owner, whom others may attack or who attacks."""
    return arena.session("owner")


@pytest.fixture
def make(arena: Arena) -> Iterator[Callable[..., str]]:
    """Register tables of 60 rows; they are gone with the arena."""
    yield lambda kind="owner", epsilon=1000: registered(arena, kind, epsilon)
    for kind in arena.names:
        arena.end(kind)  # no lock is left


@pytest.fixture
def dataset(make: Callable[..., str]) -> str:
    """A registered table of the owner, with a large budget."""
    return make()
