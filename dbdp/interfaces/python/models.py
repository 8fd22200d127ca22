"""Read-only SQLAlchemy models of the views `dbdp.datasets`, `history`, `models` and `allowances`.

A role sees its own rows, as in SQL. An insert, update or delete through a model raises TypeError: register, train and
grant by `dbdp.Database` or by SQL functions.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

from sqlalchemy import JSON, BigInteger, DateTime, Double, Integer, Numeric, Text, event
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import DeclarativeBase, Mapped, ORMExecuteState, Session, mapped_column


class Base(DeclarativeBase):
    """Base class of the models. Views have no primary key and SQLAlchemy requires one, so each model names its own."""

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
    """A registered dataset that the role may train on: a row of `dbdp.datasets`.

    Attributes
    ----------
    name : str
        Name of the dataset.
    source : str
        Name of its table.
    rows : int
        Public number of rows.
    declaration : dict
        What was declared of label and features.
    epsilon, delta : float
        The total budget.
    mode : str
        How charges are added up.
    charge_limit, leak_limit : Decimal
        The largest sums of charges and of δ, in the units of the ledger.
    registered_by : str
        The role that registered it.
    registered_at : datetime
        When.
    unit : str or None
        Column that names the unit of privacy; None for one row.
    max_rows : int or None
        Largest number of rows of a unit that a training reads.
    renews : int or None
        Number of the registration whose budget this one renews.
    reason : str or None
        Reason of that renewal.
    answer_seconds : int or None
        Charged results are delayed to a multiple of these seconds.
    capacity : int or None
        Largest number of rows, or of units, that is read; None for a public number.
    place : str or None
        Where the rows are, as `spark:parquet:/path`; None for a table of PostgreSQL.
    """

    __tablename__ = "datasets_details"
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
    capacity: Mapped[int | None] = mapped_column(BigInteger)
    place: Mapped[str | None]


class Charge(Base):
    """A charge that the role may see, with its outcome: a row of `dbdp.history`.

    Attributes
    ----------
    id : int
        Number of the charge in the ledger.
    charged_at : datetime
        When.
    charged_by : str
        The role that was charged.
    dataset : str
        Name of the dataset.
    period : int
        Number of the registration whose budget was charged.
    algorithm : str
        What was charged: an algorithm of a training, or a score.
    event : dict
        The event that the accountant composes.
    epsilon, delta : float
        The stand-alone guarantee of the release.
    charge, leak : Decimal
        What was added to the two sums of the budget.
    outcome : str or None
        How it ended; None while it runs.
    models : list of int or None
        Numbers of the released models.
    ended_at : datetime or None
        When it ended.
    detail : str or None
        More about a failure.
    """

    __tablename__ = "history_details"
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
    """A released model that the role may predict with: a row of `dbdp.models`.

    Attributes
    ----------
    id : int
        Number of the model.
    dataset : str
        Name of the dataset.
    algorithm : str
        The algorithm that trained it.
    epsilon, delta : float
        Its guarantee.
    feature_names : list of str
        A name for each coefficient.
    coefficients : list, shape (features,) or (classes, features), or None
        Per unit of a column or for a category; None for a network.
    intercept : float or None
        Of a model with one output.
    intercepts : list, shape (outputs,), or None
        One for each output; None for a network.
    network : dict or None
        Description of a network; None for a linear model.
    receipt : dict
        What was done and what it cost.
    name : str or None
        Its name.
    version : int or None
        Its version under that name.
    """

    __tablename__ = "models_details"
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
    name: Mapped[str | None]
    version: Mapped[int | None] = mapped_column(Integer)


class Summary(Base):
    """A released summary that the role may use: a row of `dbdp.summaries`.

    Attributes
    ----------
    id : int
        Number of the summary.
    dataset : str
        Name of the dataset.
    epsilon, delta : float
        Its guarantee.
    feature_names : list of str
        A name for each coordinate of the features.
    label : str
        Name of the label's column.
    receipt : dict
        What was done and what it cost.
    """

    __tablename__ = "summaries_details"
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    dataset: Mapped[str]
    epsilon: Mapped[float]
    delta: Mapped[float]
    feature_names: Mapped[list[str]]
    label: Mapped[str]
    receipt: Mapped[dict[str, Any]]


class Allowance(Base):
    """A role's right to train on a dataset, with its limit and spending: a row of `dbdp.allowances`.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    role : str
        The role that may train.
    epsilon, delta : float or None
        The guarantee of all its releases together; None where only the dataset's budget limits them.
    left_share : float or None
        Part of the allowance that is left.
    epsilon_left : float or None
        Largest ε of one more release with noise at the end, at a tenth of the dataset's δ.
    charge_limit, charged : float or None
        Largest sum of charges, and the sum so far.
    leak_limit, leaked : float or None
        Largest sum of δ, and the sum so far.
    rdp_order : float or None
        The Rényi order of its charges.
    granted_by : str
        The role that granted it.
    granted_at : datetime
        When.
    """

    __tablename__ = "allowances_details"
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012

    dataset: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    epsilon: Mapped[float | None]
    delta: Mapped[float | None]
    left_share: Mapped[float | None]
    epsilon_left: Mapped[float | None]
    charge_limit: Mapped[float | None]
    charged: Mapped[float | None]
    leak_limit: Mapped[float | None]
    leaked: Mapped[float | None]
    rdp_order: Mapped[float | None]
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
    return TypeError(f"{model.__name__} is read-only; register, renew, grant and train by dbdp.Database")


class Statistics(Base):
    """What became of a dataset's charges: a row of `dbdp.stat_datasets`.

    Attributes
    ----------
    period : int
        Number of the dataset; a renewed budget has another.
    dataset : str
        Its name.
    registered_by : str
        The role that registered it.
    registered_at : datetime
        When.
    charges, releases, failures, unfinished : int
        Charges in the ledger, and how they ended.
    total_seconds, mean_seconds, max_seconds : float or None
        From a charge to its release.
    last_charge, last_release : datetime or None
        When.
    spent_share, unrecorded_share : float or None
        Part of the budget that was spent, and that was spent by charges without a row in the ledger.
    """

    __tablename__ = "stat_datasets_details"
    __table_args__ = {"schema": "dbdp"}  # noqa: RUF012

    period: Mapped[int] = mapped_column(primary_key=True)
    dataset: Mapped[str]
    registered_by: Mapped[str]
    registered_at: Mapped[datetime]
    charges: Mapped[int] = mapped_column(BigInteger)
    releases: Mapped[int] = mapped_column(BigInteger)
    failures: Mapped[int] = mapped_column(BigInteger)
    unfinished: Mapped[int] = mapped_column(BigInteger)
    total_seconds: Mapped[float]
    mean_seconds: Mapped[float | None]
    max_seconds: Mapped[float | None]
    last_charge: Mapped[datetime | None]
    last_release: Mapped[datetime | None]
    spent_share: Mapped[float | None]
    unrecorded_share: Mapped[float | None]
