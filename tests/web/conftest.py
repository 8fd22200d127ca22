"""Roles with passwords, and the page that they sign in to."""

from collections.abc import Iterator

import httpx
import psycopg
import pytest
from site_of_tests import People, Site, served


@pytest.fixture(scope="module")
def people(server_url: str) -> Iterator[People]:
    """The roles and their datasets."""
    made = People(server_url)
    try:
        with made.login("owner") as session:
            asked = session.pgconn.used_password
        if not asked:
            pytest.skip("this server lets roles in without their password, so nobody can sign in to the page")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared_site(people: People) -> Iterator[Site]:
    """A page for tests that neither fail to sign in nor set its clock."""
    with served(people.url) as site:
        yield site


@pytest.fixture
def site(people: People) -> Iterator[Site]:
    """A page of the test's own."""
    with served(people.url) as site:
        yield site


@pytest.fixture(scope="module")
def owner(people: People, shared_site: Site) -> Iterator[httpx.Client]:
    """The data owner, signed in."""
    with shared_site.sign_in(people.names["owner"]) as client:
        yield client


@pytest.fixture(scope="module")
def analyst(people: People, shared_site: Site) -> Iterator[httpx.Client]:
    """An analyst of one dataset, signed in."""
    with shared_site.sign_in(people.names["analyst"]) as client:
        yield client


@pytest.fixture
def as_owner(people: People) -> Iterator[psycopg.Connection]:
    """The data owner in SQL."""
    with people.login("owner") as session:
        yield session
