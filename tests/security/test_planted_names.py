"""Each command is run where traps are planted for every operator, function, type and relation: none is met.

The server's log has every statement that a client sends, whichever part of dbdp sends it, psycopg and psql included.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
import traps
import typer
from psycopg.conninfo import make_conninfo
from servers import temporary_cluster
from typer.testing import CliRunner

from dbdp import adult, connections
from dbdp.cli import app
from dbdp.cluster import Cluster
from dbdp.sessions import ClientSession

PASSWORD = "of the tests alone"
FIRST, BEHIND = "traps, pg_catalog, public", '"$user", public, dbdp'  # copies are met first; pairs fit better
ROWS = "(a float8, b float8, y text, g text)"
FILLED = "select i / 200.0, (i * 7 % 200) / 200.0, (i % 2)::text, chr(97 + i % 2) from generate_series(1, 200) as i"
REGISTRATION = {"label": "y", "positive": "1", "epsilon": 1000, "delta": 1e-3, "mode": "basic"}
NOTHING_OF_OURS = {"server psql"}  # the user's own session
UNPLANTED = {"row_number", "over", "values", "in", "and", "or", "as", "join", "exists", "from", "filter", "any", "all"}


class World:
    """A private server with traps, an owner `alice`, an analyst `bob`, and a superuser."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.urls = {
            role: make_conninfo(cluster.url, dbname="dbdp", **({"user": role, "password": PASSWORD} if role else {}))
            for role in ("alice", "bob", "")
        }
        self.admin = self.session()
        self.admin.execute(f"create role alice login in role dbdp_data_owner password '{PASSWORD}'")
        self.admin.execute(f"create role bob login in role dbdp_analyst password '{PASSWORD}'")
        self.admin.execute("grant create on schema public to alice; grant usage on schema public to public")
        self.admin.execute(f"create table public.rows_of_alice {ROWS}; alter table public.rows_of_alice owner to alice")
        self.admin.execute(f"insert into public.rows_of_alice {FILLED}")
        for name, content in self.files.items():
            (folder / name).write_text(content)

    files: ClassVar = {
        "features.json": json.dumps({"a": [0, 1], "b": [0, 1]}),
        "corrected.json": json.dumps({"a": [0, 2], "b": [0, 1]}),
        "candidates.json": json.dumps([{"regularisation": 0.1}, {"regularisation": 0.01}]),
        "public.csv": "a,b,y\n" + "".join(f"{i / 50},{1 - i / 50},{i % 2}\n" for i in range(50)),
    }

    def session(self, dbname: str = "dbdp") -> psycopg.Connection:
        """A session of the superuser that meets no trap."""
        url = make_conninfo(self.cluster.url, dbname=dbname, options="-c search_path=pg_catalog")
        return psycopg.connect(url, autocommit=True)

    def plant(self, dbname: str) -> None:
        """Plant traps in a database; operators for pairs also where CREATE on the database is enough."""
        with self.session(dbname) as admin:
            traps.plant(admin, "traps", copies=True)
            for schema in ("public", "postgres", "alice", "bob"):
                traps.plant(admin, schema, copies=False)

    def set_path(self, path: str, dbname: str = "dbdp") -> None:
        """Have the path found by database and by role, which is stronger."""
        self.admin.execute(f"alter database {dbname} set search_path = {path}")
        for role in ("alice", "bob", "postgres"):
            self.admin.execute(f"alter role {role} set search_path = {path}")

    def commands(self) -> dict[str, list[list[Any]]]:
        """Arguments of each command, in an order in which they work; the role comes first, None without a server."""
        features, candidates = self.folder / "features.json", self.folder / "candidates.json"
        picture, public = self.folder / "x.png", self.folder / "public.csv"
        options = ["--features", features, "--delta", 1e-3, "--epsilon", 1000, "--mode", "basic"]
        quick = ["--epsilon", 1, "--epochs", 1]
        return {
            "version": [[None]],
            "explain": [[None, "--rows", 10, "--features", 2, "--epsilon", 1]],
            "server start": [[None]],
            "server status": [[None]],
            "server url": [[None]],
            "doctor": [["postgres"], ["alice"], ["bob"], ["postgres", "--json"]],
            "register": [["alice", "d", "rows_of_alice", "--label", "y", "--positive", "1", "--public-column", "g", *options]],
            "redeclare": [["alice", "d", "--reason", "r", "--features", self.folder / "corrected.json"]],
            "renew": [["alice", "d", "--reason", "r"]],
            "grant-training": [["alice", "d", "bob"]],
            "train": [["alice", "d", *quick], ["bob", "d", *quick], ["alice", "d", *quick, "--shards", 2]],
            "train-groups": [["alice", "d", "--group-by", "g", "--group", "a", "--group", "b", *quick]],
            "tune": [["alice", "d", "--candidates", candidates, *quick]],
            "datasets": [["alice"], ["bob"]],
            "models": [["alice"], ["bob"]],
            "budget": [["alice", "d"]],
            "ledger": [["alice", "d"]],
            "check-ledger": [["alice"], ["postgres"]],
            "allowances": [["alice"]],
            "score": [["alice", "MODEL", "d", "--epsilon", 1]],
            "confusion": [["alice", "MODEL", "d", "--epsilon", 1]],
            "class-balance": [["alice", "d", "--epsilon", 1]],
            "bounds": [["alice", "d", "a", "--epsilon", 1, "--delta", 1e-6]],
            "predict": [["alice", "MODEL", "rows_of_alice"]],
            "grant-prediction": [["alice", "MODEL", "bob"]],
            "revoke-prediction": [["alice", "MODEL", "bob"]],
            "baseline": [["alice", "d"]],
            "plot noise": [["alice", picture, "--dataset", "d"]],
            "plot budget": [["alice", "d", picture]],
            "plot loss": [["alice", "d", picture]],
            "plot utility": [
                ["alice", picture, "--dataset", "d", "--on", "rows_of_alice", "--yes", "--epsilon", 1, "--repeats", 1],
                ["postgres", picture, "--csv", public, "--label", "y", "--features", features, "--positive", "1",
                 "--epsilon", 1, "--repeats", 1],
            ],
            "demo": [["postgres"]],
            "revoke-training": [["alice", "d", "bob"]],
            "install": [["another"]],
            "uninstall": [["another", "--yes"]],
            "web": [],
            "server psql": [],
            "server stop": [],
        }  # fmt: skip


def every_command() -> Iterator[str]:
    group = typer.main.get_command(app)
    for name in group.list_commands(None):
        found = group.get_command(None, name)
        yield from (f"{name} {inner}" for inner in found.commands) if hasattr(found, "commands") else (name,)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with temporary_cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBDP_HOME", str(cluster.home.parent))
        patch.setenv("DBDP_DATA", "/nonexistent")
        patch.setattr(adult, "download", _unreachable)
        with (cluster.home / "data" / "postgresql.conf").open("a") as file:
            file.write("log_statement = all\nlog_line_prefix = '@@@%q%u '\nwal_writer_delay = '10ms'\n")
        cluster.stop()
        cluster.start()
        made = World(cluster, tmp_path_factory.mktemp("files"))
        made.plant("dbdp")
        made.admin.execute("create database another template template0")
        made.plant("another")
        made.set_path(FIRST, "another")
        yield made


def _unreachable() -> str:
    raise OSError("no network here")


@pytest.fixture(params=[FIRST, BEHIND])
def path(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """A search_path with traps on it, in force; the last dataset is gone."""
    world.set_path(request.param)
    yield request.param
    with connections.opened(world.urls["alice"]) as alice:
        for row in ClientSession(alice).query("select name from dbdp.datasets"):
            alice.execute("select dbdp.drop_dataset(%s)", (row["name"],))


def run(world: World, name: str, role: str | None, *arguments: Any) -> None:
    """Run a command in this process, as a role."""
    url = [] if role is None else ["--url", make_conninfo(world.cluster.url, dbname="another")]
    if role in ("alice", "bob", "postgres"):
        url = ["--url", world.urls["" if role == "postgres" else role]]
    ((newest,),) = world.admin.execute("select coalesce(max(id), 0) from dbdp.model").fetchall()
    given = [str(newest if each == "MODEL" else each) for each in arguments]
    result = CliRunner().invoke(app, [*name.split(), *given, *url])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in ((0, 1) if name == "doctor" else (0,)), (name, result.output)


def test_no_command_is_left_out(world: World) -> None:
    assert set(every_command()) == set(world.commands())
    assert {name for name, calls in world.commands().items() if not calls} == {"web", "server stop"} | NOTHING_OF_OURS


@pytest.mark.security
def test_no_command_meets_a_planted_name(world: World, path: str) -> None:
    for name, calls in world.commands().items():
        for role, *arguments in calls:
            run(world, name, role, *arguments)
            assert traps.met(world.admin) == 0, (name, role)
