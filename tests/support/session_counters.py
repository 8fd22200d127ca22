"""Every counter that a session may read: the numbers of all views and functions of PostgreSQL's statistics.

The server's catalogues name them, so that those of a newer version are among them.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

Counts = Counter[tuple[str, ...]]

OF_NAMES, OF_NUMBERS = (19, 25), (20, 21, 23, 700, 701, 1700)  # types of columns: name and text; numbers
CLOCK = "_time"  # of what is measured with a clock, the end of its name
SOURCES = {
    "views": """
select c.relname, format('pg_catalog.%I', c.relname)
from pg_class as c
where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind = 'v' and c.relname ~ '^pg_stat(io)?_'
and has_table_privilege(c.oid, 'select')
order by 1""",
    # About the server, and about a session by its process. They read no catalogue, and so hardly count themselves.
    "functions": """
select p.proname, format('pg_catalog.%I(%s)', p.proname, case p.pronargs when 1 then 'pg_backend_pid()' end)
from pg_proc as p
where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.proname ~ '^pg_stat_get_'
and (p.pronargs = 0 or p.proargtypes = '23'::oidvector) and has_function_privilege(p.oid, 'execute')
order by 1""",
}


class Observer:
    """A session, and what it may count: in views, or by functions."""

    def __init__(self, session: psycopg.Connection, kind: str) -> None:
        self.session = session
        self.sources = session.execute(SOURCES[kind]).fetchall()

    def grown(self, call: Callable[[], Any]) -> Counts:
        """By how much each counter grows with a call."""
        before = self._now()
        call()
        after = self._now()
        return Counter({key: value - before[key] for key, value in after.items() if value != before[key]})

    def _now(self) -> Counts:
        """Every counter, by source, names in its row, and column; what the session counted is reported before."""
        self.session.execute("select pg_stat_force_next_flush()")
        found: Counts = Counter()
        for source, expression in self.sources:
            cursor = self.session.execute(f"select * from {expression}")
            columns = [*enumerate(cursor.description or ())]
            names = [i for i, column in columns if column.type_code in OF_NAMES]
            numbers = {i: column.name for i, column in columns if column.type_code in OF_NUMBERS}
            for row in cursor.fetchall():
                key = (source, *(re.sub(r"\d+", "N", str(row[i])) for i in names))  # objects have a dataset's number
                found.update({(*key, name): row[i] or 0 for i, name in numbers.items() if not name.endswith(CLOCK)})
        return found


def apart(one: list[Counts], other: list[Counts]) -> dict[tuple[str, ...], list[list[float]]]:
    """The counters that tell calls of one kind from those of another: each of the one is below each of the other."""
    found = {}
    for key in set().union(*one, *other):
        values = sorted([[counts[key] for counts in one], [counts[key] for counts in other]])
        if max(values[0]) < min(values[1]):
            found[key] = values
    return found
