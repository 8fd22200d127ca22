"""The blocks of the README and of the pages of docs/ run in their order with the printed results; see pages.py."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from interpreters import Reader, reader
from pages import REASONS, ROOT, Page, Step, pages
from pairs import others_slow
from psycopg import conninfo, sql
from servers import temporary_cluster

from dbdp.deployment.bootstrap import find_postgresql
from dbdp.deployment.cluster import Cluster

PAGES = {page.name: page for page in pages()}
FIRST = [name for name, page in PAGES.items() if page.after is None and any(page.steps())]


@pytest.fixture(scope="module")
def private_server() -> Iterator[Cluster]:
    """The private server that `dbdp server start` uses; its database is copied to a template."""
    if find_postgresql() is None:
        pytest.skip("a private server needs PostgreSQL with PL/Python on this machine")
    with temporary_cluster() as cluster:
        with psycopg.connect(conninfo.make_conninfo(cluster.url, dbname="postgres"), autocommit=True) as connection:
            connection.execute("create database pristine template dbdp")
        yield cluster


@pytest.fixture
def new_reader(private_server: Cluster, tmp_path: Path) -> Iterator[Reader]:
    """A reader in an empty folder with a private server in its initial state."""
    programs = find_postgresql().programs
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "DBDP"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{programs}:{environment['PATH']}",
        "DBDP_HOME": str(private_server.home.parent),
        "HOME": str(tmp_path),
        "COLUMNS": "120",
        "LC_ALL": "C.UTF-8",
        "PSQL_PAGER": "cat",
    }
    make_pristine(private_server)
    with reader(environment, tmp_path, private_server.url) as one:
        yield one


def make_pristine(cluster: Cluster) -> None:
    """Restore the initial databases and roles of the private server."""
    with psycopg.connect(conninfo.make_conninfo(cluster.url, dbname="postgres"), autocommit=True) as connection:
        made = "select datname from pg_database where datname not in ('postgres', 'pristine') and not datistemplate"
        for (name,) in connection.execute(made).fetchall():
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
        ours = r"select rolname from pg_roles where rolname !~ '^(pg_|dbdp_)' and rolname <> 'postgres'"
        for (name,) in connection.execute(ours).fetchall():
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
        connection.execute("create database dbdp template pristine")
        connection.execute('alter database dbdp set search_path = "$user", public, dbdp')


def follow(page: Page, reader: Reader) -> None:
    """Run the blocks of a page, and compare their output."""
    for step in page.steps():
        printed, failed = reader.follow(step)
        where = f"{page.name}:{step.line}\n{step.code}\nprinted\n{printed}"
        assert failed == step.may_fail, where
        assert step.agrees(printed), f"{where}\nbut should have\n{step.expected}"


@pytest.mark.parametrize("name", others_slow(FIRST, "docs/guides/summaries.md"))
def test_every_block_does_what_the_page_shows(name, new_reader):
    follow(PAGES[name], new_reader)
    for page in PAGES.values():
        if page.after == name:
            follow(page, new_reader)


@pytest.mark.parametrize(
    ("language", "code", "control"),
    [
        ("sql", "select 1/0;", "select 1;"),
        ("sql", "\\nonsense", "\\conninfo"),
        ("sh", "false\ntrue", "true"),
        ("python", "1/0", "1/1"),
    ],
)
def test_a_block_that_fails_would_be_seen(language, code, control, new_reader):
    assert new_reader.follow(Step(language, code, 1))[1]
    assert not new_reader.follow(Step(language, control, 1))[1]


def test_what_a_page_promises_is_compared():
    told = "noise | rows\n-----+-----\n 0.25 | 7\n…\nend"
    printed = "noise  | rows\n-------+-----\n 0.25  | 7\nand more\nend\n"
    exact, noisy = (Step("sql", "", 1, told, noisy) for noisy in (False, True))
    other = printed.replace("0.25", "-1.3e-07")
    assert (exact.agrees(printed), exact.agrees(other), noisy.agrees(other)) == (True, False, True)
    assert not noisy.agrees(printed.replace("rows", "row"))
    assert not Step("sql", "", 1, "1 | 2", True).agrees("1 | 2 | 3")


def test_only_what_cannot_run_here_is_left_out():
    results = {(page.name, reason) for page in PAGES.values() for reason in page.reasons}
    assert {(name, reason) for name, reason in results if reason not in REASONS} == set()


def test_the_readme_names_targets_that_the_makefile_has():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", PAGES["README.md"].text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
