"""No view or function of the server's statistics tells an analyst's calls on one table from those on its neighbour.

It is one table, which its owner changes between the calls: pages of catalogues and names of objects stay the same.
"""

import secrets
from collections.abc import Callable, Iterator
from itertools import product

import psycopg
import pytest
from attacker import Arena, allow
from pairs import others_slow
from session_counters import SOURCES, Counts, Observer, apart

pytestmark = pytest.mark.security
ROUNDS, FIRST = 9, 3  # calls of each kind that are compared, and those before, which load what they need
LENGTH = 300
FLAT = f"array_fill(0.05::float8, array[{LENGTH}])"  # stored in its row, compressed
LONG = f"(select array_agg(sin(i) / 20) from generate_series(1, {LENGTH}) as i)"  # stored out of line
DECLARED = "label => 'y', positive => '1'"
KINDS = {  # how many rows of a person are read, and the change of a neighbour
    "a null": (1, "x = null"),
    "five rows": (5, "x = array_fill(-0.05::float8, array[300]), y = 0"),
    "a value out of line": (1, f"x = {LONG}"),
    "forty values out of line": (40, f"x = {LONG}"),
}
CALLS = {
    "train": "select model from dbdp.dp_logreg(%s, epsilon => 0.1, algorithm => 'bolt_on', epochs => 1)",
    "summary": "select * from dbdp.dp_summarize(%s, epsilon => 0.1, delta => 1e-9)",
    "class balance": "select dbdp.dp_class_balance(%s, epsilon => 0.01)",
}
UNHIDDEN = """do $$
import contextlib, sys
sys.modules["dbdp.sessions.inside.backend"]._of_no_type = contextlib.nullcontext
$$ language plpython3u"""
Change = Callable[[bool], None]


def made(arena: Arena, kind: str) -> tuple[str, Change]:
    """Register a table of people, and give what makes it one of two neighbours, with as many versions of rows."""
    rows, change = KINDS[kind]
    owner, name = arena.session("owner"), f"t_{secrets.token_hex(4)}"
    owner.execute(f"""create table {name} as
select {FLAT} as x, i % 2 as y, i / {rows} as u from generate_series(0, 799) as i""")
    owner.execute(
        f"select dbdp.register_dataset(%s, %s::regclass, {DECLARED}, features => %s, epsilon => 1000, delta => 1e-3, "
        "mode => 'basic', unit => 'u', max_rows => %s, capacity => 800)",
        (name, f"{arena.names['owner']}.{name}", '{"x": {"length": 300, "norm": 1}}', rows),
    )
    allow(owner, name, arena.names["analyst"])

    def alter(is_neighbour: bool) -> None:
        values = change if is_neighbour else f"x = {FLAT}, y = 1"
        owner.execute(f"update {name} set {values} where u = 7")
        owner.execute(f"vacuum {name}")
        owner.execute("select pg_stat_force_next_flush()")

    return name, alter


def observed(session: psycopg.Connection, kind: str, dataset: tuple[str, Change], call: str) -> list[list[Counts]]:
    """What grows with a call on a table, and on its neighbour; their order has no period, as catalogues may have."""
    (name, alter), observer = dataset, Observer(session, kind)
    found: list[list[Counts]] = [[], []]
    for number in range(FIRST + ROUNDS):
        is_first = number.bit_count() % 2 == 1
        for is_neighbour in (is_first, not is_first):
            alter(is_neighbour)
            grown = observer.grown(lambda: session.execute(CALLS[call], (name,)).fetchall())
            if number >= FIRST:
                found[is_neighbour].append(grown)
    return found


@pytest.fixture
def analyst_alone(arena: Arena) -> Iterator[psycopg.Connection]:
    """A fresh session of the analyst."""
    with arena.login("analyst") as session:
        yield session


QUICK = [*product(KINDS, ["functions"], ["train"])]


@pytest.mark.parametrize(("change", "kind", "call"), others_slow(list(product(KINDS, SOURCES, CALLS)), *QUICK))
@pytest.mark.attack("counters")
def test_no_count_of_a_session_tells_neighbours_apart(arena, analyst_alone, change, kind, call):
    """What a row decides comes back in each of the attempts; the upkeep of catalogues does not."""
    dataset = made(arena, change)
    found = set(apart(*observed(analyst_alone, kind, dataset, call)))
    for _ in range(3):
        if found:
            found &= set(apart(*observed(analyst_alone, kind, dataset, call)))
    assert found == set()


OF_READS = ("pg_stat_get_io", "pg_stat_get_backend_io")  # since PostgreSQL 16, and 18


@pytest.fixture
def counting_reads(arena: Arena) -> int:
    """How many of `OF_READS` this server has."""
    with arena.admin() as admin:
        found = admin.execute("select count(*) from pg_proc where proname = any (%s)", (list(OF_READS),)).fetchone()[0]
    if not found:
        pytest.skip("this version of PostgreSQL does not count the pages that a session reads")
    return found


def hits(observer: Observer, call: str, name: str) -> float:
    """The pages that a session counts for one call."""
    grown = observer.grown(lambda: observer.session.execute(call, (name,)).fetchall())
    return sum(count for (source, *_, column), count in grown.items() if source in OF_READS and column == "hits")


@pytest.mark.attack("counters")
def test_a_call_counts_no_page_that_it_reads(analyst_alone, arena, counting_reads):
    """Calls on different tables and of different algorithms count alike: what the client's own statement reads."""
    for kind in ("a null", "forty values out of line"):
        name, alter = made(arena, kind)
        alter(True)
        observer = Observer(analyst_alone, "functions")
        for call in CALLS.values():
            assert min(hits(observer, call, name) for _ in range(5)) < 10 * counting_reads  # undefended 1,200 each


@pytest.mark.control("counters")
def test_pages_tell_neighbours_apart_if_they_are_counted(arena, counting_reads):
    """Control: a superuser's session in which nothing hides them takes the analyst's part.

    `pg_stat_io` counts all sessions, so that another one may hide the difference in an attempt.
    """
    with arena.admin() as session:
        session.execute("select dbdp.dp_explain(%s, epsilon => 1)", (made(arena, "a null")[0],))  # loads dbdp
        session.execute(UNHIDDEN)
        session.execute(f"set session authorization {arena.names['analyst']}")
        dataset, found, wanted = made(arena, "forty values out of line"), set(), set(OF_READS[:counting_reads])
        for _ in range(4):
            told = apart(*observed(session, "functions", dataset, "train"))
            found |= {source for source, *_, column in told if column == "hits"}
            if found == wanted:
                break
        assert found == wanted
