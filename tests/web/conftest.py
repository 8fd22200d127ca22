"""Roles, and the page that shows what each may see."""

from collections.abc import Iterator

import httpx
import psycopg
import pytest
from site_of_tests import People, Site, served, visiting


@pytest.fixture(scope="module")
def people(server_url: str) -> Iterator[People]:
    """The roles and their datasets."""
    made = People(server_url)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared_site(people: People) -> Iterator[Site]:
    """The owner's page, for tests that do not set its clock."""
    with served(people.url_of("owner")) as site:
        yield site


@pytest.fixture
def site(people: People) -> Iterator[Site]:
    """A page of the owner's, of the test's own."""
    with served(people.url_of("owner")) as site:
        yield site


@pytest.fixture(scope="module")
def owner(shared_site: Site) -> Iterator[httpx.Client]:
    """The data owner, with a session."""
    with shared_site.open() as client:
        yield client


@pytest.fixture(scope="module")
def analyst(people: People) -> Iterator[httpx.Client]:
    """An analyst of one dataset, with a session."""
    with visiting(people, "analyst") as client:
        yield client


@pytest.fixture
def as_owner(people: People) -> Iterator[psycopg.Connection]:
    """The data owner in SQL."""
    with people.login("owner") as session:
        yield session
