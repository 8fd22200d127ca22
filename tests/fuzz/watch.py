"""What must hold around every statement of a fuzzed session: no crash, no leak, no budget lost or gained, no residue.

`Watch.attempt` runs a statement, and checks afterwards: the same backend runs; the odometer of the dataset advanced by
the receipt's charge, and by nothing without a receipt; no temporary table, lock, cursor or setting is left; no text of
the server contains a value of a row; an error is one of dbdp's own, and names the remedy.
"""

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS

NUMBER, WORD = 804613725918.0, "kanarienvogel"  # values of rows that no text may hold
SMALL = 1804613725  # the same for a column of 32 bits
CANARIES = [WORD, "804613725918", "804613718016", "8.046137e+11", str(SMALL)]
CANARIES += [struct.pack(form, NUMBER).hex() for form in ("<d", ">d")]
CANARIES += [struct.pack(form, SMALL).hex() for form in ("<i", ">i")]
OURS = "DP001"
REMEDY = re.compile(
    r"; |: |must|choose|drop |see dbdp|needs|known are|may not|its columns are|is not registered|cannot be|give"
)
STRANGE = re.compile(r"Traceback|NoneType|math domain|object has no|unexpected keyword|positional argument|Error:")
SESSION = """
select pg_backend_pid(),
  (select count(*) from pg_class where relpersistence = 't' and relname like '%dbdp%'),
  (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
  (select count(*) from pg_cursors where name <> ''),
  (select md5(string_agg(name || '=' || setting, ',' order by name)) from pg_settings where source = 'session')"""
LEDGER = """
select (select count(*) from dbdp.model), (select count(*) from dbdp.ledger),
  (select count(*) from pg_class where relkind = 'S' and relnamespace = 'dbdp'::regnamespace)
    - 2 * (select count(*) from dbdp.dataset)"""
SPENT = """
select (select last_value from dbdp.charge_{0}), (select last_value from dbdp.leak_{0}), charge_limit, leak_limit
from dbdp.dataset where id = {0}"""
RELEASED = "select id, coefficients, intercept, intercepts, receipt from dbdp.model where id = %s"
LATEST = """
select coalesce(sum(charge), 0)::int8, coalesce(sum(leak), 0)::int8
from (select * from dbdp.ledger where dataset_id = %s order by id desc limit %s) as l"""


@dataclass(frozen=True)
class Share:
    """How much of the fuzzing a test run does."""

    of_thousand: int
    repeatable: bool

    def cases(self, most: int, strategy: SearchStrategy[Any], check: Callable[[Any], None]) -> None:
        """Check so many drawn cases; `most` in the slow suite."""
        self.settings(most)(given(strategy)(check))()

    def settings(self, most: int, **more: Any) -> settings:
        """Hypothesis's settings for so many cases, `most` in the slow suite."""
        return settings(
            max_examples=max(8, most * self.of_thousand // 1000),
            deadline=None,
            database=None,
            derandomize=self.repeatable,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            **more,
        )


FEW, ALL = Share(15, True), Share(1000, False)
SHARES = [pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.slow)]


@dataclass(frozen=True)
class Outcome:
    """What a statement gave: rows, or an error."""

    rows: list[Any] | None
    error: psycopg.Error | None = None

    @property
    def message(self) -> str:
        return "" if self.error is None else self.error.diag.message_primary or str(self.error)

    @property
    def sqlstate(self) -> str:
        return "" if self.error is None else self.error.sqlstate or ""

    @property
    def stopped(self) -> bool:
        """Whether it failed after its charge."""
        return "after its charge" in self.message


class Watch:
    """Watches one session, and the ledger through another one.

    Attributes
    ----------
    connection : the session that is watched, autocommit
    ledger : a superuser's session, autocommit
    allowed : SQLSTATEs of errors beside our own
    """

    def __init__(self, connection: psycopg.Connection, ledger: psycopg.Connection) -> None:
        self.connection = connection
        self.ledger = ledger
        self.allowed: tuple[str, ...] = ()
        self._dataset: int | None = None
        self._notices: list[str] = []
        self.answered = self.refused = 0
        connection.add_notice_handler(lambda notice: self._notices.append(everything(notice)))

    def of(self, name: str) -> "Watch":
        """Watch the odometers of a dataset from now on."""
        row = self.ledger.execute("select max(id) from dbdp.dataset where name = %s", (name,)).fetchone()
        self._dataset = row[0]
        return self

    def spent(self) -> tuple[int, int]:
        """The odometers, in units; never above the limits."""
        if self._dataset is None:
            return 0, 0
        charge, leak, *limits = self.ledger.execute(SPENT.format(self._dataset).encode()).fetchone()
        assert charge <= limits[0]
        assert leak <= limits[1]
        return charge, leak

    def attempt(self, sql: str, parameters: Sequence[Any] = (), *, charges: int = 0, stores: int = 0) -> Outcome:
        """Run a statement that may be refused, and check all that must hold.

        Parameters
        ----------
        charges, stores : rows of the ledger, and models, that a success leaves
        """
        before, ledger, spent = self._session(), self._ledger(), self.spent()
        self._notices.clear()
        outcome = self._run(sql, parameters)
        made = [now - then for now, then in zip(self._ledger(), ledger, strict=True)]
        assert (now := self._session()) == before, (before, now, outcome)
        succeeded = outcome.error is None
        assert made == [stores * succeeded, charges if succeeded else outcome.stopped, 0], outcome
        moved = tuple(now - then for now, then in zip(self.spent(), spent, strict=True))
        assert moved == self.ledger.execute(LATEST, (self._dataset, made[1])).fetchone(), outcome
        if receipt := receipt_in(outcome):
            assert (moved[0] / CHARGE_UNITS, moved[1] / LEAK_UNITS) == (receipt["charge"], receipt["leak"]), outcome
        self._check_words(outcome)
        self.answered += succeeded
        self.refused += not succeeded
        return outcome

    def saw_both(self) -> None:
        """Check that some statements were answered and some refused: otherwise the search was too narrow.

        Of many, one in twenty at least; of few, which a new version of Hypothesis draws anew, one.
        """
        drawn = self.answered + self.refused
        least = drawn / 20 if drawn >= 500 else 1
        assert min(self.answered, self.refused) >= least, (self.answered, self.refused)

    def _run(self, sql: str, parameters: Sequence[Any]) -> Outcome:
        try:
            cursor = self.connection.execute(sql.encode(), parameters or None)
            rows = cursor.fetchall() if cursor.description else []
            if cursor.description and cursor.description[-1].name == "noisy":  # a training
                rows = [self.ledger.execute(RELEASED, (row[0],)).fetchone() for row in rows]
            return Outcome(rows)
        except psycopg.Error as error:
            if error.sqlstate is None and not self.connection.closed:
                raise
            assert not self.connection.closed, f"the backend is gone: {error}"
            return Outcome(None, error)

    def _session(self) -> tuple[Any, ...]:
        return self.connection.execute(SESSION.encode()).fetchone()

    def _ledger(self) -> tuple[int, ...]:
        return self.ledger.execute(LEDGER.encode()).fetchone()

    def _check_words(self, outcome: Outcome) -> None:
        texts = [*self._notices, str(outcome.rows)]
        if outcome.error is not None:
            texts.append(everything(outcome.error.diag))
            assert outcome.sqlstate in (OURS, *self.allowed), (outcome.sqlstate, everything(outcome.error.diag))
        if outcome.sqlstate == OURS:
            assert REMEDY.search(outcome.message), outcome.message
            assert not STRANGE.search(outcome.message), outcome.message
        assert_silent(" ".join(texts))


def assert_silent(text: str) -> None:
    """No value that was planted in a row is in the text."""
    heard = [canary for canary in CANARIES if canary in text.lower()]
    assert not heard, (heard, text)


def everything(diagnostic: Any) -> str:
    """Return all fields of an error or a notice of the server."""
    return " | ".join(
        str(getattr(diagnostic, name)) for name in dir(diagnostic) if not name.startswith("_") and name != "sqlstate"
    )


def receipt_in(outcome: Outcome) -> dict[str, Any] | None:
    """The receipt in the last column of a result, itself or within a JSON object; of an explanation None."""
    last = outcome.rows[0][-1] if outcome.rows else None
    found = last.get("receipt", last) if isinstance(last, dict) else None
    return found if found and "version" in found else None


def finite(value: Any) -> bool:
    """Whether all numbers of nested lists are finite."""
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    return value is None or math.isfinite(value)
