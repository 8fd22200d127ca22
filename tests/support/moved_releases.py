"""How far each release of a training moves between neighbours, by the real aggregates, without its noise."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
import pytest

from dbdp.algorithms import Request, plan
from dbdp.algorithms.plan import Plan
from dbdp.controller.facts import coded, facts
from dbdp.controller.packed_rows import packed_rows
from dbdp.interfaces.python.client.connecting import connect
from dbdp.privacy.mechanisms import Gaussian
from dbdp.registry import datasets
from dbdp.sessions.session import Session

Moved = list[tuple[float, Gaussian]]


@contextmanager
def neighbours(server_url: str, schema: str, others: str, records: dict[str, str], **options: Any) -> Iterator[None]:
    """Register datasets that differ in one record, named `schema_name` after it, among rows of the query `others`."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"create schema {schema}; grant usage on schema {schema} to public")
        connection.execute(f"create table {schema}.others as {others}")
        for name, record in records.items():
            connection.execute(f"create table {schema}.{name} as table {schema}.others")
            connection.execute(f"insert into {schema}.{name} values ({record})")
            connect(connection).register_dataset(f"{schema}_{name}", f"{schema}.{name}", **options)
        yield
        for name in records:
            connection.execute("select dbdp.drop_dataset(%s)", (f"{schema}_{name}",))
        connection.execute(f"drop schema {schema} cascade")


def moved(
    session: Session, names: Iterable[str], request: Request, monkeypatch: pytest.MonkeyPatch
) -> tuple[Moved, Plan]:
    """How far each release moves from one dataset to the next where those before it were the same, and its noise.

    The plan is the last one. A name may be that of a dataset whose rows change before it is asked for.
    """
    seen: list[list[np.ndarray]] = []
    noises: list[Gaussian] = []

    def released(noise: Gaussian, vector: np.ndarray) -> np.ndarray:
        seen[-1].append(np.asarray(vector, float))
        if len(seen) == 1:
            noises.append(noise)
        return seen[0][len(seen[-1]) - 1]

    for name in names:
        seen.append([])
        dataset, named = coded(datasets.load(session, name), request)
        made = plan(named, facts(dataset, named))
        with monkeypatch.context() as patch, packed_rows(session, dataset, made.layout) as rows:
            patch.setattr(Gaussian, "release", released)
            made.run(rows)
    return [(float(np.linalg.norm(a - b)), noise) for a, b, noise in zip(*seen, noises, strict=True)], made
