"""Each command is run where every name of others has control characters: none of these reaches the terminal."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from planted import PASSWORD, World, every_command
from psycopg import sql
from psycopg.conninfo import make_conninfo
from servers import temporary_cluster

from dbdp.deployment.cluster import Cluster
from dbdp.interfaces.cli.demo import adult
from dbdp.interfaces.cli.main import app
from dbdp.interfaces.plain import plain_lines

pytestmark = [pytest.mark.security, pytest.mark.slow]

# Sets the window's title, rings, changes colours (C1), returns, turns the direction, ends a line: 30 bytes.
HOSTILE = "\x1b]0;p\x07\x9b31m\r\n\u202e\u2028\u200b"
TABLE = f'"{HOSTILE}rows"'
OTHERS = {"rows_of_alice": TABLE} | {name: f"{HOSTILE}{name}" for name in ("a", "b", "y", "g", "bob", "alice", "r")}
ROLES = {"alice": OTHERS["alice"], "bob": OTHERS["bob"], "": ""}


class HostileWorld(World):
    """A private server whose roles, tables, columns, categories, views and files have control characters."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.urls = {
            role: make_conninfo(cluster.url, dbname="dbdp", **({"user": name, "password": PASSWORD} if name else {}))
            for role, name in ROLES.items()
        }
        self.admin = self.session()
        names = {name: sql.Identifier(text) for name, text in OTHERS.items()}
        names["table"] = sql.Identifier(f"{HOSTILE}rows")
        for statement in STATEMENTS:
            self.admin.execute(sql.SQL(statement).format(**names, password=PASSWORD, one=OTHERS["a"], two=OTHERS["b"]))
        self.admin.execute("create database another template template0")
        for name, content in self.hostile_files().items():
            (folder / name).write_text(content)

    def hostile_files(self) -> dict[str, str]:
        """The files, with columns of these names."""
        changed = dict(self.files)
        for name in ("features.json", "corrected.json"):
            changed[name] = json.dumps({OTHERS[column]: ends for column, ends in json.loads(changed[name]).items()})
        changed["public.json"] = self.files["features.json"]
        return changed

    def calls(self) -> Iterator[tuple[str, str | None, list[Any]]]:
        """Each call of each command, with hostile names."""
        of_csv = {self.folder / "features.json": self.folder / "public.json"}
        for name, calls in self.commands().items():
            for role, *arguments in calls:
                renamed = of_csv if "--csv" in arguments else OTHERS
                yield name, role, [renamed.get(each, each) for each in arguments]


STATEMENTS = (
    "create role {alice} login in role dbdp_data_owner password {password}",
    "create role {bob} login in role dbdp_analyst password {password}",
    "grant create on schema public to {alice}; grant usage on schema public to public",
    "create table public.{table} ({a} float8, {b} float8, {y} text, {g} text)",
    "alter table public.{table} owner to {alice}",
    """insert into public.{table}
    select i / 200.0, (i * 7 % 200) / 200.0, (i % 2)::text, case i % 2 when 0 then {one} else {two} end
    from generate_series(1, 200) as i""",
    "set role {alice}; create view public.{a} as select id from dbdp.granted_models; reset role",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileWorld]:
    with temporary_cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBDP_HOME", str(cluster.home.parent))
        patch.setenv("DBDP_DATA", "/nonexistent")
        patch.setattr(adult, "download", _unreachable)
        yield HostileWorld(cluster, tmp_path_factory.mktemp("files"))


def _unreachable() -> str:
    raise OSError(f"no network here {HOSTILE}")


def shown_by(world: HostileWorld, name: str, role: str | None, arguments: list[Any]) -> Iterator[str]:
    url = [] if role is None else ["--url", make_conninfo(world.cluster.url, dbname="another")]
    if role in ("alice", "bob", "postgres"):
        url = ["--url", world.urls["" if role == "postgres" else role]]
    ((newest,),) = world.admin.execute("select coalesce(max(id), 0) from dbdp.model").fetchall()
    given = [str(newest if each == "MODEL" else each) for each in arguments]
    for more in ([], ["--json"]) if name in READS else ([],):
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*name.split(), *given, *url, *more])
        yield f"{result.stdout}{result.stderr}"
        assert result.exit_code == 0 or more or name == "doctor", (name, result.output, result.exception)


OF_MODELS = {"weights", "shapes"}
READS = {"datasets", "models", "budget", "ledger", "check-ledger", "allowances", "check-declaration"} | OF_MODELS


@pytest.mark.attack("control-characters")
def test_no_command_shows_a_control_character(world):
    """The commands of `test_planted_names`, which are all there are; they end well, so each shows what it has."""
    assert set(every_command()) == set(world.commands())
    escaped = set()
    for name, role, arguments in world.calls():
        for shown in shown_by(world, name, role, arguments):
            assert plain_lines(shown) == shown, (name, shown)
            escaped |= {name} if r"\x1b]0;p\x07" in shown or r"\u001b]0;p" in shown else set()
    assert escaped >= {"ledger", "allowances", "grant-training", "predict", "datasets", "doctor"} | OF_MODELS, escaped


@pytest.mark.attack("control-characters")
def test_an_uninstallation_shows_names_of_others_escaped(world):
    """The attack as it was carried out: a view of another role, in the question before the extension is dropped."""
    url = make_conninfo(world.cluster.url, dbname="dbdp")
    result = CliRunner().invoke(app, ["uninstall", "--url", url], input="n\n")
    shown = result.stdout + result.stderr
    assert r"\x1b]0;p\x07" in shown
    assert plain_lines(shown) == shown
    assert "Drop extension dbdp?" in shown


ERRORS = (
    ["budget", f"d{HOSTILE}"],
    ["train", "d", "--epsilon", "1", "--algorithm", HOSTILE],
    ["train", HOSTILE, "--epsilon", "1"],
    ["predict", "1", HOSTILE],
    ["predict", HOSTILE, TABLE],
    ["grant-training", "d", HOSTILE],
    ["revoke-prediction", HOSTILE, HOSTILE],
    ["bounds", "d", HOSTILE, "--epsilon", "1"],
    ["register", "e", HOSTILE, "--label", "y", "--features", HOSTILE, "--delta", "1e-3"],
    ["plot", "noise", HOSTILE],
    ["renew", "d", "--reason", HOSTILE, "--epsilon", HOSTILE],
)


@pytest.mark.parametrize("words", ERRORS, ids=lambda words: words[0])
@pytest.mark.attack("control-characters")
def test_no_error_shows_a_control_character(world, words):
    command = [sys.executable, "-m", "dbdp.interfaces.cli.main", *words, "--url", world.urls[""]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode
    assert plain_lines(ended.stdout + ended.stderr) == ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
