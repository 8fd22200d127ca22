"""SQLAlchemy models of registry and ledger, to read: the views `dbdp.datasets`, `history`, `models` and `allowances`.

A role sees its own rows, as in SQL. Nothing can be written through them, nor by an update, insert or delete of them in
an ORM session: the doors do that.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

from sqlalchemy import JSON, BigInteger, DateTime, Double, Integer, Numeric, Text, event
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import DeclarativeBase, Mapped, ORMExecuteState, Session, mapped_column


class Base(DeclarativeBase):
    """What the models share; SQLAlchemy asks for a key, and views have none, so that each names one."""

    type_annotation_map = {  # noqa: RUF012  # as SQLAlchemy reads it
        str: Text,
        float: Double,
        Decimal: Numeric,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSON,
        list[str]: ARRAY(Text),
        list[float]: ARRAY(Double),
        list[int]: ARRAY(BigInteger),
    }

    def __repr__(self) -> str:
        loaded = ((each.name, self.__dict__.get(each.name)) for each in self.__table__.columns)
        shown = [f"{name}={value!r}" for name, value in loaded if isinstance(value, str | int | float)]
        return f"{type(self).__name__}({', '.join(shown)})"


class Dataset(Base):
    """A registered dataset that the role may train on: public facts and its total budget."""

    __tablename__ = "datasets"
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012

    name: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str]
    rows: Mapped[int] = mapped_column(BigInteger)
    declaration: Mapped[dict[str, Any]]
    epsilon: Mapped[float]
    delta: Mapped[float]
    mode: Mapped[str]
    charge_limit: Mapped[Decimal]
    leak_limit: Mapped[Decimal]
    registered_by: Mapped[str]
    registered_at: Mapped[datetime]
    unit: Mapped[str | None]
    max_rows: Mapped[int | None] = mapped_column(Integer)
    renews: Mapped[int | None] = mapped_column(Integer)
    reason: Mapped[str | None]
    answer_seconds: Mapped[int | None] = mapped_column(Integer)


class Charge(Base):
    """A charge that the role may see, and what became of it."""

    __tablename__ = "history"
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    charged_at: Mapped[datetime]
    charged_by: Mapped[str]
    dataset: Mapped[str]
    period: Mapped[int] = mapped_column(Integer)
    algorithm: Mapped[str]
    event: Mapped[dict[str, Any]]
    epsilon: Mapped[float]
    delta: Mapped[float]
    charge: Mapped[Decimal]
    leak: Mapped[Decimal]
    outcome: Mapped[str | None]
    models: Mapped[list[int] | None]
    ended_at: Mapped[datetime | None]
    detail: Mapped[str | None]


class Model(Base):
    """A released model that the role may predict with.

    `coefficients` are a list of numbers, or of one list for each class; null for a network.
    """

    __tablename__ = "models"
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    dataset: Mapped[str]
    algorithm: Mapped[str]
    epsilon: Mapped[float]
    delta: Mapped[float]
    feature_names: Mapped[list[str]]
    coefficients: Mapped[list[Any] | None] = mapped_column(ARRAY(Double))
    intercept: Mapped[float | None]
    intercepts: Mapped[list[float] | None]
    network: Mapped[dict[str, Any] | None]
    receipt: Mapped[dict[str, Any]]


class Allowance(Base):
    """A role's right to train on a dataset, and how much of its budget it may spend and has spent."""

    __tablename__ = "allowances"
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012

    dataset: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    epsilon: Mapped[float | None]
    charge_limit: Mapped[float | None]
    charged: Mapped[float | None]
    leak_limit: Mapped[float | None]
    leaked: Mapped[float | None]
    implied_epsilon: Mapped[float | None]
    implied_delta: Mapped[float | None]
    granted_by: Mapped[str]
    granted_at: Mapped[datetime]


@event.listens_for(Base, "before_insert", propagate=True)
@event.listens_for(Base, "before_update", propagate=True)
@event.listens_for(Base, "before_delete", propagate=True)
def _refuse(_mapper: Any, _connection: Any, target: Base) -> NoReturn:
    raise _read_only(type(target))


@event.listens_for(Session, "do_orm_execute")
def _refuse_statement(state: ORMExecuteState) -> None:
    mapper = state.bind_mapper
    if mapper is not None and issubclass(mapper.class_, Base) and not state.is_select:
        raise _read_only(mapper.class_)


def _read_only(model: type) -> TypeError:
    return TypeError(f"{model.__name__} is read-only; register, renew, grant and train through dbdp.Database")
