"""Trainings in an environment, by each interface, and what they left in the ledger."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
from commands import run_here

from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.estimators.linear import LogisticRegression
from dbdp.sessions.errors import ChargedError

TRAINED = "trained"
_TRAIN = "select model from dbdp.dp_logreg(%s, 0.01, 1e-9, 'bolt_on', epochs => 1)"
_COMMAND = ("--epsilon", "0.01", "--delta", "1e-9", "--algorithm", "bolt_on", "--epochs", "1", "--json")
_OF_TABLES = """
select d.id,
       (select count(*) from dbdp.ledger as l where l.dataset_id = d.id),
       (select count(*) from dbdp.model as m where m.dataset_id = d.id)
from dbdp.dataset as d
where d.name = %s
and d.dropped_at is null
"""


class Left(NamedTuple):
    """What a dataset's trainings left: rows of the ledger, models, and the odometer, which no rollback undoes."""

    charges: int
    models: int
    charged: int

    @classmethod
    def by(cls, admin: psycopg.Connection, dataset: str) -> "Left":
        """Read it as a superuser."""
        ((number, charges, models),) = admin.execute(_OF_TABLES, (dataset,)).fetchall()
        ((charged,),) = admin.execute(f"select last_value from dbdp.charge_{number}").fetchall()
        return cls(charges, models, charged)


def by_sql(url: str, dataset: str) -> str:
    """Train by a statement of SQL."""
    with psycopg.connect(url, autocommit=True) as session:
        try:
            session.execute(_TRAIN, (dataset,))
        except psycopg.Error as error:
            return str(error)
    return TRAINED


def by_python(url: str, dataset: str, **options: Any) -> str:
    """Train from Python, one query for each epoch."""
    try:
        with connect(url) as database:
            given = {"epsilon": 0.01, "delta": 1e-9, "algorithm": "bolt_on", "epochs": 1} | options
            LogisticRegression(database=database, progress=False, **given).fit(dataset)
    except ChargedError:
        raise
    except (ValueError, psycopg.Error) as error:
        return str(error)
    return TRAINED


def in_shards(url: str, dataset: str) -> str:
    """Train from Python on two shards, each by a connection."""
    return by_python(url, dataset, shards=2)


def by_command(url: str, dataset: str) -> str:
    """Train from the command line."""
    done = run_here("train", dataset, "--url", url, *_COMMAND)
    if done.returncode:
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr
    assert json.loads(done.stdout)
    return TRAINED


ROUTES: dict[str, Callable[[str, str], str]] = {
    "SQL": by_sql,
    "Python": by_python,
    "Python in shards": in_shards,
    "command": by_command,
}


def outcome(admin: psycopg.Connection, url: str, dataset: str, route: str) -> str:
    """Train once, and return TRAINED or the refusal; fail unless it charged and stored one model, or did neither."""
    before = Left.by(admin, dataset)
    result = ROUTES[route](url, dataset)
    after = Left.by(admin, dataset)
    if result == TRAINED:
        assert (after.charges, after.models) == (before.charges + 1, before.models + 1), (route, before, after)
        assert after.charged > before.charged
    else:
        assert after == before, (route, result)
    return result
