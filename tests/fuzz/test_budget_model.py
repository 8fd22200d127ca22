"""A session that does anything in any order: the odometers are those of a model of the budget in plain Python.

Transactions, savepoints, errors that are caught, cancels, tables that change, datasets that are dropped and
registered again: a rollback undoes all but what was spent.
"""

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from watch import NUMBER, SHARES, WORD, assert_silent, everything

LIMIT, UNITS = 3.0, 10**9
TABLES, NAMES, COSTS = st.sampled_from(["one", "two"]), st.sampled_from(["a", "b"]), st.sampled_from([0.5, 1.0, 5.0])
REGISTER = "select dbdp.register_dataset(%s, %s::regclass, 'y', 'a', %s, %s, 0, mode => 'basic')"
DECLARED = '{"x": {"length": 2, "norm": 1}}'
ROW = f"'{{{NUMBER},1}}', '{WORD}'"
TRAIN = "select model from dbdp.dp_logreg(%s, %s, algorithm => 'bolt_on', epochs => 1)"
CAUGHT = """
do $$ begin perform dbdp.dp_logreg('{}', {}, algorithm => 'bolt_on', epochs => 1);
    raise exception 'undone'; exception when others then null;
end $$"""
LONG = (
    "select model from dbdp.dp_svm(%s, %s, "
    "algorithm => 'bolt_on', epochs => 3000, batch_size => 1, schedule => 'square_root')"
)
LEFT = """
select (select count(*) from pg_class where relpersistence = 't' and relname like '%dbdp%'),
  (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())"""
_identities = count()
_done: Counter[str] = Counter()  # statements that did what they say, by their first words


@dataclass
class Table:
    """A table: `identity` distinguishes it from an earlier one of the same name."""

    rows: int = 0
    kind: str = "text"
    identity: int = field(default_factory=lambda: next(_identities))


@dataclass
class Dataset:
    """What was registered."""

    number: int
    table: Table


@dataclass
class World:
    """What a rollback undoes: tables and datasets by name, models, and what the open transaction registered."""

    tables: dict[str, Table] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    models: int = 0

    def trains(self, name: str) -> bool:
        """Whether a dataset is there, for good, and its table is what was registered."""
        dataset = self.datasets.get(name)
        return dataset is not None and dataset.number in self.committed and dataset.table in self.tables.values()

    def registers(self, name: str, table: str) -> bool:
        found = self.tables.get(table)
        taken = {dataset.table.identity for dataset in self.datasets.values()}
        return name not in self.datasets and found is not None and found.rows > 0 and found.identity not in taken


class AnySession(RuleBasedStateMachine):
    """Runs statements and keeps the model beside them."""

    def __init__(self, session: psycopg.Connection, ledger: psycopg.Connection) -> None:
        super().__init__()
        self.session, self.ledger = session, ledger
        self.world, self.before, self.spent = World(), [], {}
        self.first = self._models()

    @initialize()
    def begin_with_a_dataset(self) -> None:
        self.make_anew()

    @rule()
    def make_anew(self) -> None:
        """Have a dataset that trains, as far as the open transaction lets it."""
        self.drop_dataset("a")
        self.drop_table("one")
        self.make("one")
        self.insert("one", 2)
        self.register("a", "one")

    @rule(table=TABLES)
    def make(self, table: str) -> None:
        if self._does(f"create table {table} (x float8[], y text)", (), table not in self.world.tables):
            self.world.tables[table] = Table()

    @rule(table=TABLES)
    def drop_table(self, table: str) -> None:
        if self._does(f"drop table {table}", (), table in self.world.tables):
            del self.world.tables[table]

    @rule(table=TABLES, times=st.integers(1, 3))
    def insert(self, table: str, times: int) -> None:
        sql = f"insert into {table} select {ROW} from generate_series(1, {times})"
        if self._does(sql, (), table in self.world.tables):
            self._changed(table).rows += times

    @rule(table=TABLES)
    def empty(self, table: str) -> None:
        if self._does(f"delete from {table}", (), table in self.world.tables):
            self._changed(table).rows = 0

    @rule(table=TABLES, kind=st.sampled_from(["text", "varchar"]))
    def alter(self, table: str, kind: str) -> None:
        if self._does(f"alter table {table} alter column y type {kind}", (), table in self.world.tables):
            self._changed(table).kind = kind

    @rule(old=TABLES, new=TABLES)
    def rename(self, old: str, new: str) -> None:
        possible = old in self.world.tables and new not in self.world.tables
        if self._does(f"alter table {old} rename to {new}", (), possible):
            self.world.tables[new] = self.world.tables.pop(old)

    @rule(name=NAMES, table=TABLES)
    def register(self, name: str, table: str) -> None:
        if self._does(REGISTER, (name, table, DECLARED, LIMIT), self.world.registers(name, table)):
            sql = "select max(id) from dbdp.dataset where name = %s and dropped_at is null"
            number = self.session.execute(sql, (name,)).fetchone()[0]
            self.world.datasets[name] = Dataset(number, deepcopy(self.world.tables[table]))
            self.spent[number] = 0.0
            self._settle()

    @rule(name=NAMES)
    def drop_dataset(self, name: str) -> None:
        if self._does("select dbdp.drop_dataset(%s)", (name,), name in self.world.datasets):
            del self.world.datasets[name]

    @rule(cost=COSTS)
    def train_both(self, cost: float) -> None:
        for name in ("a", "b"):
            self.train(name, cost)

    def train(self, name: str, cost: float) -> None:
        if self._does(TRAIN, (name, cost), self._affords(name, cost)):
            self.world.models += 1
            self.spent[self.world.datasets[name].number] += cost

    @rule(name=NAMES, cost=COSTS)
    def train_in_vain(self, name: str, cost: float) -> None:
        """The model is undone by an error that is caught; the charge is not."""
        affords = self._affords(name, cost)
        assert self._does(CAUGHT.format(name, cost), (), True)
        if affords:
            self.spent[self.world.datasets[name].number] += cost

    @rule(name=NAMES, cost=COSTS, patience=st.integers(1, 60))
    def train_and_cancel(self, name: str, cost: float, patience: int) -> None:
        """Cancelled before its charge, in it, or after it: never with a model, seldom in vain."""
        affords = self._affords(name, cost)
        self.session.execute(f"set statement_timeout = '{patience}ms'")
        message = self._attempt(LONG, (name, cost))
        self.session.execute("reset statement_timeout")
        assert message is not None
        number = self.world.datasets[name].number if name in self.world.datasets else None
        moved = self._odometer(number) - self.spent[number] if number in self.world.committed else 0.0
        assert moved in ((0.0, cost) if affords else (0.0,))
        assert moved == cost or "after its charge" not in message
        if moved:
            self.spent[number] += moved

    @precondition(lambda self: not self.before)
    @rule(level=st.sampled_from(["read committed", "repeatable read", "serializable"]))
    def begin(self, level: str) -> None:
        self.session.execute(f"begin transaction isolation level {level}")
        self.before = [deepcopy(self.world)]

    @precondition(lambda self: self.before)
    @rule()
    def savepoint(self) -> None:
        self.session.execute(f"savepoint s{len(self.before)}")
        self.before.append(deepcopy(self.world))

    @precondition(lambda self: len(self.before) > 1)
    @rule()
    def rollback_to(self) -> None:
        self.session.execute(f"rollback to s{len(self.before) - 1}; release s{len(self.before) - 1}")
        self.world = self.before.pop()

    @precondition(lambda self: self.before)
    @rule()
    def rollback(self) -> None:
        self.session.execute("rollback")
        self.world, self.before = self.before[0], []

    @precondition(lambda self: self.before)
    @rule()
    def commit(self) -> None:
        self.session.execute("commit")
        self.before = []
        self._settle()

    @invariant()
    def the_ledger_is_consistent(self) -> None:
        for number in self.world.committed:
            assert self._odometer(number) == self.spent[number]
            assert self.spent[number] <= LIMIT
        assert self._models() - self.first == self.world.models
        assert self.session.execute(LEFT.encode()).fetchone() == (0, 0)

    def teardown(self) -> None:
        self.session.execute("rollback")
        for (name,) in self.session.execute(
            "select name from dbdp.datasets_details where name in ('a', 'b')"
        ).fetchall():
            self.session.execute("select dbdp.drop_dataset(%s)", (name,))
        self.session.execute("drop table if exists one, two")

    def _affords(self, name: str, cost: float) -> bool:
        trains = self.world.trains(name)
        return trains and self.spent[self.world.datasets[name].number] + cost <= LIMIT

    def _changed(self, table: str) -> Table:
        """The table, as a value of its own: what was registered stays what it was."""
        self.world.tables[table] = deepcopy(self.world.tables[table])
        return self.world.tables[table]

    def _settle(self) -> None:
        """Outside a transaction all that is registered is committed."""
        if not self.before:
            self.world.committed |= {dataset.number for dataset in self.world.datasets.values()}

    def _does(self, sql: str, parameters: tuple[Any, ...], possible: bool) -> bool:
        """Run a statement that the model allows or refuses."""
        message = self._attempt(sql, parameters)
        assert (message is None) == possible, (sql, parameters, message, self.world)
        _done[sql.strip()[:22]] += possible
        return possible

    def _attempt(self, sql: str, parameters: tuple[Any, ...]) -> str | None:
        """Run a statement; return an error's text. A transaction goes on after it."""
        if self.before:
            self.session.execute("savepoint mine")
        try:
            self.session.execute(sql.encode(), parameters or None)
        except psycopg.Error as error:
            assert not self.session.closed
            assert_silent(everything(error.diag))
            if self.before:
                self.session.execute("rollback to mine")
            return error.diag.message_primary
        finally:
            if self.before:
                self.session.execute("release mine")
        return None

    def _odometer(self, number: int) -> float:
        return self.ledger.execute(f"select last_value from dbdp.charge_{number}").fetchone()[0] / UNITS

    def _models(self) -> int:
        return self.session.execute("select count(*) from dbdp.model").fetchone()[0]


@pytest.mark.parametrize("share", SHARES)
def test_no_order_of_statements_gains_or_loses_budget(owner, connection, share):
    owner.execute("set client_min_messages = warning")
    how = share.settings(300, stateful_step_count=40)
    _done.clear()
    run_state_machine_as_test(lambda: AnySession(owner, connection), settings=how)
    for statement in (TRAIN, REGISTER, CAUGHT):
        assert _done[statement.strip()[:22]] > 0, _done  # else nothing was tried
