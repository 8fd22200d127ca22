"""The SQLAlchemy models have the columns of the views, and are read-only."""

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from dbdp import orm
from dbdp.interfaces.python.client.database import Database

MODELS = (orm.Dataset, orm.Charge, orm.Model, orm.Summary, orm.ReleasedStatistic, orm.Allowance, orm.Statistics)


@pytest.fixture(autouse=True)
def prepared(engine):
    """The models know their columns."""
    orm.prepare(engine)


REFLECTED = {"name": "varchar"}  # psycopg gives both as str


def in_catalogue(connection: psycopg.Connection, view: str) -> dict[str, str]:
    """Return the types of a view's columns, in their order."""
    rows = connection.execute(
        "select attname::text, format_type(atttypid, null) from pg_attribute "
        "where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum",
        (view,),
    ).fetchall()
    return {name: REFLECTED.get(kind, kind) for name, kind in rows}


def in_model(model: type[orm.Base]) -> dict[str, str]:
    """Return the types of a model's columns, as the catalogue writes them."""
    dialect = postgresql.dialect()
    return {each.name: each.type.compile(dialect).lower() for each in model.__table__.columns}


@pytest.mark.parametrize("model", MODELS)
def test_every_column_is_mapped_with_its_type(connection, model):
    primary = {each.name: "text" for each in model.__table__.primary_key if each.type.python_type is str}
    assert in_model(model) == in_catalogue(connection, model.__table__.fullname) | primary


def test_a_column_that_a_view_lacks_would_be_noticed(connection):
    connection.execute("create temporary view few as select name from dbdp.datasets")
    assert in_model(orm.Dataset).keys() > in_catalogue(connection, "pg_temp.few").keys() == {"name"}


def test_every_view_that_is_not_internal_has_a_model(connection):
    rows = connection.execute(
        "select relname from pg_class where relnamespace = 'dbdp'::regnamespace and relkind = 'v' "
        "and obj_description(oid, 'pg_class') not like 'internal: %'"
    ).fetchall()
    mapped = {model.__tablename__ for model in MODELS}  # the wide views; the others show a part of them
    keyless = {"prediction_grants", "unconfirmed_roles"}  # lists without a key
    assert {name for (name,) in rows} - keyless == mapped | {name.removesuffix("_details") for name in mapped}


@pytest.fixture
def trained(connection: psycopg.Connection, database: Database, dataset: str) -> str:
    """A dataset with one model, one charge and one allowance."""
    database.grant_training(dataset, "dbdp_analyst", epsilon=1)
    connection.execute("select dbdp.dp_logreg(%s, 5, algorithm => 'bolt_on', epochs => 1, batch_size => 9)", (dataset,))
    return dataset


def test_registry_and_ledger_are_read(engine, trained):
    with Session(engine) as session:
        dataset = session.get_one(orm.Dataset, trained)
        assert (dataset.rows, dataset.epsilon, dataset.declaration["label"]) == (60, 1000, "y")
        charge = session.scalars(select(orm.Charge).where(orm.Charge.dataset == trained)).one()
        model = session.get_one(orm.Model, charge.models[0])
        assert (charge.outcome, float(charge.charge), model.receipt["ledger"]) == ("released", 5, charge.id)
        assert len(model.coefficients) == len(model.feature_names) == 3
        allowance = session.get_one(orm.Allowance, (trained, "dbdp_analyst"))
        assert (allowance.epsilon, allowance.charged) == (1, 0)


def test_what_is_read_shows_what_it_is(engine, trained):
    with Session(engine) as session:
        charge = session.scalars(select(orm.Charge).where(orm.Charge.dataset == trained)).one()
        assert repr(charge).startswith(f"Charge(id={charge.id}, ")
        assert f"dataset={trained!r}, " in repr(charge)
    session.expire_all()
    assert repr(charge).startswith("Charge(")  # also without a session


@pytest.mark.parametrize("make", [sqlalchemy.insert, sqlalchemy.update, sqlalchemy.delete])
def test_nothing_is_written_by_a_statement(engine, trained, make):
    statement = make(orm.Dataset) if make is sqlalchemy.delete else make(orm.Dataset).values(name="another")
    with Session(engine) as session, pytest.raises(TypeError, match=r"Dataset is read-only.*dbdp\.Database"):
        session.execute(statement)


@pytest.mark.parametrize("how", ["insert", "update", "delete"])
def test_nothing_is_written(engine, trained, how):
    with Session(engine) as session:
        dataset = session.get_one(orm.Dataset, trained)
        if how == "insert":
            session.add(orm.Dataset(name="another"))
        elif how == "update":
            dataset.epsilon = 1e6
        else:
            session.delete(dataset)
        with pytest.raises(TypeError, match=r"Dataset is read-only.*dbdp\.Database"):
            session.flush()
