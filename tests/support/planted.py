"""A server with traps on the search_path, and every command of the command line."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import click
import psycopg
import traps
from psycopg.conninfo import make_conninfo

from dbdp.deployment.cluster import Cluster
from dbdp.interfaces.cli.main import app

PASSWORD = "of the tests alone"
ROWS = "(a float8, b float8, y text, g text)"
FILLED = "select i / 200.0, (i * 7 % 200) / 200.0, (i % 2)::text, chr(97 + i % 2) from generate_series(1, 200) as i"


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

    cohort: ClassVar = json.dumps({"a": [0, 0.5], "y": ["1"]})
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
        """Set the path for the database and for the role, which overrides it."""
        self.admin.execute(f"alter database {dbname} set search_path = {path}")
        for role in ("alice", "bob", "postgres"):
            self.admin.execute(f"alter role {role} set search_path = {path}")

    def commands(self) -> dict[str, list[list[Any]]]:
        """Arguments of each command, in an order in which they work; the role comes first, None without a server."""
        return self._that_train() | self._that_use_models() | self._that_draw_and_end()

    def _that_train(self) -> dict[str, list[list[Any]]]:
        features, candidates = self.folder / "features.json", self.folder / "candidates.json"
        options = ["--features", features, "--delta", 1e-3, "--epsilon", 1000, "--positive", "1"]
        quick = ["--epsilon", 1, "--algorithm", "bolt_on", "--epochs", 1]
        return {
            "version": [[None]],
            "server start": [[None]],
            "server status": [[None]],
            "server url": [[None]],
            "doctor": [["postgres"], ["alice"], ["bob"], ["postgres", "--json"]],
            "confirm-roles": [["postgres"], ["postgres", "--all"]],
            "register": [["alice", "d", "rows_of_alice", "--label", "y", "--public-column", "g", *options]],
            "redeclare": [["alice", "d", "--reason", "r", "--features", self.folder / "corrected.json"]],
            "renew": [["alice", "d", "--reason", "r"]],
            "raise-capacity": [["alice", "d", 1000, "--reason", "r"]],
            "answer-at-multiples": [["alice", "d", "--reason", "r", *given] for given in (["--seconds", 1], [])],
            "grant-training": [["alice", "d", "bob"]],
            "train": [
                *([role, "d", *quick, "--shards", n] for role, n in (("alice", 1), ("bob", 1), ("alice", 2))),
                *([role, "d", "--epsilon", 1, "--delta", 1e-6] for role in ("alice", "bob")),
                *([role, "d", *quick, "--cohort", self.cohort] for role in ("alice", "bob")),
            ],
            "train-groups": [["alice", "d", "--group-by", "g", "--group", "a", "--group", "b", *quick]],
            "tune": [["alice", "d", "--candidates", candidates, *quick]],
        }  # fmt: skip

    def _that_use_models(self) -> dict[str, list[list[Any]]]:
        made, like = f"public.fake_{secrets.token_hex(4)}", "public.rows_of_alice"
        return {
            "explain": [[None, "--rows", 10, "--features", 2, "--epsilon", 1], ["alice", "d", "--epsilon", 1]],
            "datasets": [["alice"], ["bob"]],
            "models": [["alice"], ["bob"]],
            "budget": [["alice", "d"]],
            "ledger": [["alice", "d"]],
            "check-ledger": [["alice"], ["postgres"]],
            "allowances": [["alice"]],
            "score": [["alice", "MODEL", "d", "--epsilon", 1, *more] for more in ([], ["--cohort", self.cohort])],
            "evaluate": [["alice", "MODEL", "d", "--epsilon", 1, *more] for more in ([], ["--cohort", self.cohort])],
            "weights": [["alice", "MODEL"]],
            "shapes": [["alice", "MODEL"], ["alice", "MODEL", "--importance"]],
            "export-sql": [["alice", "MODEL"]],
            "export-sklearn": [["alice", "MODEL", self.folder / "x.pickle"]],
            "plot shapes": [["alice", "MODEL", self.folder / "x.png"]],
            "confusion": [["alice", "MODEL", "d", "--epsilon", 1]],
            "class-balance": [["alice", "d", "--epsilon", 1]],
            "categories": [["alice", "d", "g", "--epsilon", 1, "--delta", 1e-6]],
            "bounds": [["alice", "d", "a", "--epsilon", 1, "--delta", 1e-6]],
            "predict": [["alice", "MODEL", "rows_of_alice"]],
            "grant-prediction": [["alice", "MODEL", "bob"]],
            "revoke-prediction": [["alice", "MODEL", "bob"]],
            "baseline": [["alice", "d"]],
            "check-declaration": [["alice", "d"]],
            "describe": [["alice", "d", "--epsilon", 1, "--delta", 1e-6]],
            "table": [["alice", "d", "--by", "y", "--mean", "a", "--epsilon", 1, "--delta", 1e-6]],
            "quantiles": [["alice", "d", "a", "--epsilon", 1, "--delta", 1e-6]],
            "summarize": [["alice", "d", "--epsilon", 1, "--delta", 1e-6, "--bins", 2, "--cohort", self.cohort]],
            "summary": [["alice", "MODEL"], ["alice", "MODEL", "--by", "y"]],
            "fake": [["alice", "MODEL", "--rows", 2, *more] for more in ([], ["--into", made, "--like", like])],
        }

    def _that_draw_and_end(self) -> dict[str, list[list[Any]]]:
        picture, public, features = (self.folder / name for name in ("x.png", "public.csv", "features.json"))
        return {
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
            "install": [["another", "--dry-run"], ["another"]],
            "uninstall": [["another", "--yes"]],
            "follow": [],
            "web": [],
            "server psql": [],
            "reproduce": [],
            "server stop": [],
        }  # fmt: skip


def every_command() -> Iterator[str]:
    for name in app.list_commands(None):
        command = app.get_command(None, name)
        inner = command.list_commands(None) if isinstance(command, click.Group) else []
        yield from (f"{name} {each}" for each in inner) if inner else (name,)
