"""Read-only SQLAlchemy models of the views of registry and ledger, with the columns that the database has.

Call `prepare` with an engine once, then select. A role sees its own rows, as in SQL. An insert, update or delete
through a model raises TypeError: register, train and grant by `dbdp.Database` or by SQL functions.
"""

from typing import Any

from dbdp.optional import needing

with needing("dbdp.orm"):
    from sqlalchemy import BigInteger, Engine, Integer, Text, event
    from sqlalchemy.ext.declarative import DeferredReflection
    from sqlalchemy.orm import DeclarativeBase, ORMExecuteState, Session, mapped_column

__all__ = ["Allowance", "Base", "Charge", "Dataset", "Model", "ReleasedStatistic", "Statistics", "Summary", "prepare"]


class Base(DeferredReflection, DeclarativeBase):
    """Base class of the models. Views have no primary key and SQLAlchemy requires one, so each model names it."""

    __abstract__ = True
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012  # as SQLAlchemy reads it

    def __repr__(self) -> str:
        loaded = ((column.name, self.__dict__.get(column.name)) for column in self.__table__.columns)
        shown = [f"{name}={value!r}" for name, value in loaded if isinstance(value, str | int | float)]
        return f"{type(self).__name__}({', '.join(shown)})"


class Dataset(Base):
    """A registered dataset: a row of `dbdp.datasets_details`."""

    __tablename__ = "datasets_details"
    name = mapped_column(Text, primary_key=True)


class Charge(Base):
    """A charge with its outcome: a row of `dbdp.history_details`."""

    __tablename__ = "history_details"
    id = mapped_column(BigInteger, primary_key=True)


class Model(Base):
    """A released model that the role may predict with: a row of `dbdp.models_details`."""

    __tablename__ = "models_details"
    id = mapped_column(BigInteger, primary_key=True)


class Summary(Base):
    """A released summary that the role may use: a row of `dbdp.summaries_details`."""

    __tablename__ = "summaries_details"
    id = mapped_column(BigInteger, primary_key=True)


class ReleasedStatistic(Base):
    """A released describe, table or distribution that the role may use: a row of `dbdp.statistics`."""

    __tablename__ = "statistics"
    id = mapped_column(BigInteger, primary_key=True)


class Allowance(Base):
    """A role's grant of training on a dataset, with its limit and spending: a row of `dbdp.allowances_details`."""

    __tablename__ = "allowances_details"
    dataset = mapped_column(Text, primary_key=True)
    role = mapped_column(Text, primary_key=True)


class Statistics(Base):
    """Counts of a dataset's charges and their run times: a row of `dbdp.stat_datasets_details`."""

    __tablename__ = "stat_datasets_details"
    period = mapped_column(Integer, primary_key=True)


def prepare(engine: Engine) -> None:
    r"""Read the columns of the models from a database; `\d+ dbdp.datasets_details` in psql shows their comments."""
    Base.prepare(engine, views=True)


@event.listens_for(Session, "before_flush")
def _refuse_flush(session: Session, _context: Any, _instances: Any) -> None:
    for written in (*session.new, *filter(session.is_modified, session.dirty), *session.deleted):
        if isinstance(written, Base):
            raise _read_only(type(written))


@event.listens_for(Session, "do_orm_execute")
def _refuse_statement(state: ORMExecuteState) -> None:
    mapper = state.bind_mapper
    if mapper is not None and issubclass(mapper.class_, Base) and not state.is_select:
        raise _read_only(mapper.class_)


def _read_only(model: type) -> TypeError:
    return TypeError(f"{model.__name__} is read-only; register, renew, grant and train by dbdp.Database")
