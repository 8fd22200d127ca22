"""The Python door: any kind of connection, scikit-learn's conventions, no secret kept from the user."""

import numpy as np
import psycopg
import pytest
import sqlalchemy
from psycopg import conninfo
from sklearn.base import clone

import dbdp
from dbdp.database import Database


@pytest.fixture
def dataset(database: Database, make_table) -> str:
    """A registered dataset of 300 rows with 3 features."""
    random = np.random.default_rng()
    features = random.normal(size=(300, 3)) / 3
    make_table("points", features, np.where(features[:, 0] > 0, 1, -1))
    database.register_dataset(
        "points",
        "points",
        label="y",
        positive="1",
        negative="-1",
        features={"x": {"length": 3, "norm": 2}},
        epsilon=1000,
        delta=1e-3,
        mode="basic",
    )
    return "points"


def targets(url: str) -> dict[str, object]:
    """Return every kind of target that `connect` takes."""
    alchemy = url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(alchemy)
    return {
        "libpq URL": url,
        "SQLAlchemy URL": alchemy,
        "SQLAlchemy engine": engine,
        "SQLAlchemy connection": engine.connect(),
        "psycopg connection": psycopg.connect(url),
    }


@pytest.mark.parametrize(
    "kind", ["libpq URL", "SQLAlchemy URL", "SQLAlchemy engine", "SQLAlchemy connection", "psycopg connection"]
)
def test_connect_takes_every_kind_of_target(kind: str, server_url: str, dataset: str) -> None:
    with dbdp.connect(targets(server_url)[kind]) as database:
        model = dbdp.LogisticRegression(epsilon=1, delta=1e-6, batch_size=10).fit(database, dataset)
        assert model.coef_.shape == (1, 3)
        database.connection.rollback()


def test_connect_reads_the_environment(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBDP_URL", server_url)
    with dbdp.connect() as database:
        assert isinstance(database.datasets(), list)


def test_a_database_without_the_extension_is_told_how_to_get_it(server_url: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create database bare")
        try:
            with pytest.raises(ValueError, match="dbdp install"):
                dbdp.connect(conninfo.make_conninfo(server_url, dbname="bare"))
        finally:
            connection.execute("drop database bare with (force)")


def test_the_estimator_keeps_scikit_learns_conventions() -> None:
    estimator = dbdp.LogisticRegression(epsilon=2, delta=1e-6, epochs=3)
    copy = clone(estimator).set_params(epochs=4)
    assert copy.get_params() == estimator.get_params() | {"epochs": 4}
    with pytest.raises(TypeError):
        dbdp.LogisticRegression()  # no default for a privacy parameter


def test_with_a_large_epsilon_it_learns(database: Database, dataset: str) -> None:
    estimator = dbdp.LogisticRegression(epsilon=100, delta=1e-6, batch_size=10).fit(database, dataset)
    features = np.random.default_rng().normal(size=(200, 3))
    assert np.mean(estimator.predict(features) == (features[:, 0] > 0)) > 0.85
    assert estimator.predict_proba(features).sum(axis=1) == pytest.approx(np.ones(200))


def test_every_epoch_is_one_query_and_is_reported(database: Database, dataset: str) -> None:
    reports: list[tuple[str, int, int]] = []
    request = dbdp.Request(epsilon=1, delta=1e-6, epochs=4, batch_size=10)
    database.train(dataset, request, lambda *report: reports.append(report))
    assert reports == [("shuffle", 0, 1), ("shuffle", 1, 1), *(("epoch", done, 4) for done in range(5))]


def test_both_doors_plan_alike(database: Database, dataset: str, connection: psycopg.Connection) -> None:
    request = dbdp.Request(epsilon=1, delta=1e-6, epochs=4, batch_size=7)
    in_server = connection.execute(
        "select dbdp.dp_explain(%s, epsilon => 1, delta => 1e-6, epochs => 4, batch_size => 7)", (dataset,)
    ).fetchone()
    assert in_server == (database.explain(dataset, request),)


def test_a_data_dictionary_becomes_a_proposal_and_never_looks_at_data() -> None:
    proposed = dbdp.propose_declaration({"age": {"minimum": 0, "maximum": 120}, "ward": {"values": ["A", "B"]}})
    assert proposed == {"age": [0.0, 120.0], "ward": ["A", "B"]}
    with pytest.raises(ValueError, match="'weight'"):
        dbdp.propose_declaration({"weight": {"unit": "kg"}})
