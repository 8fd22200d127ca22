"""The blocks of the README and of the pages of docs/ run in their order with the printed results; see pages.py."""

import html
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
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
README = "README.md"
FIRST = [name for name, page in PAGES.items() if page.after is None and any(page.steps()) and name != README]
PROGRAMS = Path(sys.prefix, "bin")  # of this environment, `dbdp` among them


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
    """A reader in an empty folder with a private server in its initial state, in the activated environment."""
    with reader_of(private_server, tmp_path, f"{PROGRAMS}:{os.environ['PATH']}") as one:
        yield one


@pytest.fixture
def newcomer(private_server: Cluster, tmp_path: Path) -> Iterator[Reader]:
    """A reader in a new shell, in a folder with the Makefile and its environment, which `make` need not install."""
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    others = [place for place in os.environ["PATH"].split(":") if Path(place) != PROGRAMS]
    data = {name: os.environ[name] for name in ("DBDP_DATA",) if name in os.environ}
    with reader_of(private_server, tmp_path, ":".join(others), MAKEFLAGS="-- BOOTSTRAP=true", **data) as one:
        yield one


@contextmanager
def reader_of(cluster: Cluster, folder: Path, path: str, **more: str) -> Iterator[Reader]:
    """Open a reader in a folder, with a private server in its initial state."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "DBDP"))}
    environment |= {
        "PATH": f"{find_postgresql().programs}:{path}",
        "DBDP_HOME": str(cluster.home.parent),
        "HOME": str(folder),
        "COLUMNS": "120",
        "LC_ALL": "C.UTF-8",
        "PSQL_PAGER": "cat",
    }
    make_pristine(cluster)
    with reader(environment | more, folder, cluster.url) as one:
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


@pytest.mark.parametrize("name", others_slow(FIRST, "docs/guides/summaries.md", "docs/guides/statistics.md"))
def test_every_block_does_what_the_page_shows(name, new_reader):
    follow(PAGES[name], new_reader)
    for page in PAGES.values():
        if page.after == name:
            follow(page, new_reader)


@pytest.mark.slow
def test_the_readme_runs_from_top_to_bottom_in_a_new_shell(newcomer):
    """As printed: the demo, SQL and Python, then the page, and what other pages continue."""
    assert newcomer.follow(Step("sh", "dbdp version", 1))[1]  # not found before the README says how
    follow(PAGES[README], newcomer)
    assert "checkups" in datasets_on_the_page(newcomer)
    for page in PAGES.values():
        if page.after == README:
            follow(page, newcomer)


def datasets_on_the_page(reader: Reader) -> str:
    """Start the page as the README does, on a free port, and open its link."""
    waiting = "while ! grep -qs http page.txt; do sleep 0.1; done; cat page.txt"
    link = reader.follow(Step("sh", f"dbdp web --port 0 > page.txt 2>&1 &\n{waiting}", 1))[0].strip()
    with httpx.Client(timeout=60) as client:
        opened = client.get(link)
        datasets = client.get(httpx.URL(link).join("/datasets")).text
    reader.follow(Step("sh", "kill %1", 1))
    assert opened.status_code == 200, opened.text
    return datasets


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs_on_generated_rows(new_reader):
    for number, code in enumerate(code_cells()):
        printed, failed = new_reader.follow(Step("python", "".join(code["source"]), number))
        assert not failed, f"cell {number} printed\n{printed}"


def test_the_notebook_shows_what_its_cells_returned():
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds == {"stream", "execute_result", "display_data"}  # no error
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"]) >= 2


def code_cells() -> list[dict[str, Any]]:
    """Return the cells of code of the notebook."""
    cells = json.loads((ROOT / "docs" / "tutorials" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_picture_shows_the_readmes_accuracies():
    draw = runpy.run_path(str(ROOT / "docs" / "draw.py"))
    table = draw["data"](PAGES[README].text)
    assert len(draw["rows"](PAGES[README].text)) == 4
    picture = html.unescape((ROOT / "docs" / "overview.svg").read_text(encoding="utf-8"))
    assert table in picture, "run `.venv/bin/python docs/draw.py`"


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
