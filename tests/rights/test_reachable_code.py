"""Calls are refused exactly if a transaction used a relation from which code of another role can be reached.

A generator makes types of types (domains, rows, arrays, ranges, multiranges, enums, with casts), functions, operators
and relations that use them anywhere, each given to a random role. It notes what it makes of what; the oracle follows
these notes, and the server its catalogue.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from attacker import Arena
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.security

ROLES = (
    "owner",
    "owner",
    "superuser",
    "superuser",
    "rival",
    "group",
)  # a transaction of the owner's trusts the first two
TRUSTED = ("owner", "superuser")
ASKED = "select dbdp.answer_at_multiples('no dataset', 'because', 1)"  # refused for this transaction, or for its name
REFUSED, ANSWERED = "this transaction uses", "is not registered"
GENERATED = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.generate],
)


@dataclass(eq=False)
class Made:
    """A type, a function, an operator or a part of a relation: its owner, and what it is made of.

    A part of a relation has no owner; `only_written` says that its code runs if the relation is written.
    """

    name: str
    owner: str | None = None
    made_of: list["Made"] = field(default_factory=list)
    kind: str = ""
    only_written: bool = False

    def reaches_others(self, is_written: bool = True) -> bool:
        """Return whether another role owns anything that this is made of."""
        seen, left = set(), [self]
        while left:
            each = left.pop()
            if each in seen or (each.only_written and not is_written):
                continue
            seen.add(each)
            if each.owner not in (None, *TRUSTED):
                return True
            left += each.made_of
        return False


class Maker:
    """Draws and makes types, functions and relations in a schema."""

    def __init__(self, draw: st.DataObject, admin: psycopg.Connection, names: dict[str, str]) -> None:
        self.draw, self.admin, self.names = draw.draw, admin, names
        self.schema = f"graph_{secrets.token_hex(4)}"
        self.count = 0
        self.types = [Made("int", "superuser", kind="int")]
        admin.execute(f"create schema {self.schema}; grant all on schema {self.schema} to public")

    def named(self, word: str) -> str:
        self.count += 1
        return f"{self.schema}.{word}_{self.count}"

    def one(self, choices: list) -> object:
        return self.draw(st.sampled_from(choices))

    def give(self, kind: str, name: str, owner: str) -> None:
        self.admin.execute(f"alter {kind} {name} owner to {self.names[owner]}")

    def function(self, of: Made, result: str = "boolean", body: str = "true") -> Made:
        """A function of a value of a type, of a random role."""
        name, owner = self.named("f"), self.one(ROLES)
        inner = []
        if result == "boolean" and self.one([False, False, True]):  # in its parsed body it calls another
            inner = [self.function(of)]
            code = f"return {inner[0].name}($1)"
        else:
            code = f"as $$ begin return {body}; end $$"
        language = "sql" if inner else "plpgsql"
        self.admin.execute(f"create function {name}({of.name}) returns {result} language {language} immutable {code}")
        self.give("function", f"{name}({of.name})", owner)
        return Made(name, owner, [of, *inner])

    def type(self) -> Made:
        """Another type, of those that are there."""
        kinds = ["enum", "domain", "checked domain", "row", "array", "range", "default"]
        made = getattr(self, self.one(kinds).replace(" ", "_"))(self.one(self.types))
        self.types.append(made)
        return made

    def enum(self, _: Made) -> Made:
        name, owner = self.named("enum"), self.one(ROLES)
        self.admin.execute(f"create type {name} as enum ('a', 'b')")
        self.give("type", name, owner)
        return self.with_cast(Made(name, owner, kind="enum"))

    def row(self, of: Made) -> Made:
        name, owner = self.named("row"), self.one(ROLES)
        other = self.one(self.types)
        self.admin.execute(f"create type {name} as (a int, x {of.name}, y {other.name})")
        self.give("type", name, owner)
        return self.with_cast(Made(name, owner, [of, other], kind="row"))

    def with_cast(self, made: Made) -> Made:
        """Perhaps a cast of the type to text, or to another type, which counts unless that is another role's."""
        target = self.one(
            [None, None, Made("text", "superuser"), *[t for t in self.types if t.kind in ("enum", "row")]]
        )
        if target is None:
            return made
        cast = self.function(made, target.name, "null")
        cast.made_of.append(target)  # its result, which may have casts too
        self.admin.execute(f"create cast ({made.name} as {target.name}) with function {cast.name}({made.name})")
        if target.owner in TRUSTED:
            made.made_of.append(cast)
        return made

    def domain(self, of: Made, more: str = "", made_of: list[Made] | None = None) -> Made:
        name, owner = self.named("domain"), self.one(ROLES)
        self.admin.execute(f"create domain {name} as {of.name} {more}")
        self.give("domain", name, owner)
        return Made(name, owner, [of, *(made_of or [])], kind="domain")

    def checked_domain(self, of: Made) -> Made:
        check = self.function(of)
        return self.domain(of, f"check ({check.name}(value))", [check])

    def default(self, of: Made) -> Made:
        value = self.function(self.types[0], of.name, "null")
        return self.domain(of, f"default {value.name}(1)", [value])

    def array(self, of: Made) -> Made:
        if of.name.endswith("[]"):
            return self.domain(of)
        return Made(f"{of.name}[]", None, [of], kind="array")

    def range(self, of: Made) -> Made:
        if of.kind not in ("int", "enum", "row"):
            return self.domain(of)
        name, owner = self.named("range"), self.one(ROLES)
        self.admin.execute(f"create type {name} as range (subtype = {of.name}, multirange_type_name = {name}_m)")
        self.give("type", name, owner)
        made = Made(name, owner, [of], kind="range")
        self.types.append(Made(f"{name}_m", owner, [made], kind="multirange"))
        return made

    def relation(self) -> Made:
        """A table of the owner, or of a superuser, with columns of such types and code of several kinds."""
        columns = self.draw(st.lists(st.sampled_from(self.types), min_size=1, max_size=3))
        name, owner = self.named("t"), self.one(list(TRUSTED))
        listed = ", ".join(f"c{number} {of.name}" for number, of in enumerate(columns))
        self.admin.execute(f"create table {name} (i int not null, {listed})")
        table = Made(name, None, list(columns), kind="table")
        for part in self.draw(st.lists(st.sampled_from(PARTS), max_size=2)):
            getattr(self, f"add_{part}")(table)
        self.give("table", name, owner)
        self.admin.execute(f"grant all on {name} to {self.names['owner']}")
        self.admin.execute(f"revoke trigger on {name} from {self.names['owner']}")
        return table

    def view(self) -> Made:
        """A view of the owner over no relation."""
        call, name = self.function(self.types[0]), self.named("v")
        of = self.one(self.types)
        self.admin.execute(f"create view {name} as select {call.name}(1) as a, null::{of.name} as x")
        self.give("view", name, "owner")
        return Made(name, None, [call, of], kind="view")

    def part(self, table: Made, *made_of: Made, only_written: bool = False) -> None:
        table.made_of.append(Made("", None, list(made_of), only_written=only_written))

    def add_default(self, table: Made) -> None:
        value = self.function(self.types[0])
        self.admin.execute(f"alter table {table.name} add column {self.bare('d')} boolean default {value.name}(1)")
        self.part(table, value, only_written=True)

    def add_generated(self, table: Made) -> None:
        value = self.function(self.types[0])
        self.admin.execute(
            f"alter table {table.name} add column {self.bare('g')} boolean generated always as ({value.name}(i)) stored"
        )
        self.part(table, value, only_written=True)

    def add_check(self, table: Made) -> None:
        value = self.function(self.types[0])
        self.admin.execute(f"alter table {table.name} add check ({value.name}(i))")
        self.part(table, value)

    def add_index(self, table: Made) -> None:
        value = self.function(self.types[0])
        text = self.one([f"({value.name}(i))", f"(i) where {value.name}(i)"])
        self.admin.execute(f"create index on {table.name} {text if 'where' in text else '(' + text + ')'}")
        self.part(table, value)

    def add_operator(self, table: Made) -> None:
        """A CHECK constraint, or an exclusion, by an operator."""
        name, owner, operator = self.named("o"), self.one(ROLES), self.one(ROLES)
        symbol = f"operator({self.schema}.=={'=' * self.count})"
        self.admin.execute(
            f"create function {name}(int, int) returns boolean language plpgsql immutable "
            "as $$ begin return true; end $$"
        )
        self.give("function", f"{name}(int, int)", owner)
        bare = f"{self.schema}.=={'=' * self.count}"
        self.admin.execute(f"create operator {bare} (function = {name}, leftarg = int, rightarg = int)")
        self.give("operator", f"{bare} (int, int)", operator)
        self.admin.execute(f"alter table {table.name} add check (i {symbol} 1)")
        self.part(table, Made("", operator, [Made(name, owner)]))

    def add_operator_class(self, table: Made) -> None:
        """An index by a class of operators, which only a superuser can make, of a function of any role."""
        name, owner = self.named("h"), self.one(ROLES)
        self.admin.execute(
            f"create function {name}(int, int) returns int language plpgsql immutable as $$ begin return 0; end $$"
        )
        self.give("function", f"{name}(int, int)", owner)
        self.admin.execute(
            f"create operator class {name}_c for type int using btree as operator 1 <, operator 2 <=, operator 3 =, "
            f"operator 4 >=, operator 5 >, function 1 {name}(int, int)"
        )
        self.admin.execute(f"create index on {table.name} (i {name}_c)")
        self.part(table, Made(name, owner))

    def add_policy(self, table: Made) -> None:
        value = self.function(self.types[0])
        self.admin.execute(f"create policy {self.bare('p')} on {table.name} using ({value.name}(i))")
        self.part(table, value)

    def add_statistics(self, table: Made) -> None:
        value = self.function(self.types[0])
        self.admin.execute(f"create statistics {self.named('s')} on ({value.name}(i)), i from {table.name}")
        self.part(table, value)

    def add_rule(self, table: Made) -> None:
        value = self.function(self.types[0])
        self.admin.execute(f"create rule {self.bare('r')} as on insert to {table.name} do also select {value.name}(1)")
        self.part(table, value, only_written=True)

    def add_trigger(self, table: Made) -> None:
        name, owner, value = self.named("tr"), self.one(ROLES), self.function(self.types[0])
        self.admin.execute(
            f"create function {name}() returns trigger language plpgsql as $$ begin return new; end $$; "
            f"create trigger {self.bare('t')} before insert on {table.name} for each row when ({value.name}(1)) "
            f"execute function {name}()"
        )
        self.give("function", f"{name}()", owner)
        self.part(table, Made(name, owner), value, only_written=True)

    def bare(self, word: str) -> str:
        return self.named(word).partition(".")[2]


PARTS = tuple(name.removeprefix("add_") for name in vars(Maker) if name.startswith("add_"))


@pytest.fixture(scope="module")
def sessions(arena: Arena) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Of the superuser, who makes all, and of the owner."""
    with arena.admin() as admin, arena.login("owner") as owner:
        owner.prepare_threshold = admin.prepare_threshold = None
        yield admin, owner


def answered(owner: psycopg.Connection, relation: Made, mode: str) -> bool:
    """Return whether a call is answered after a relation was used."""
    owner.execute("begin")
    try:
        owner.execute(f"lock table {relation.name} in {mode} mode")
        owner.execute(ASKED)
    except psycopg.Error as error:
        assert REFUSED in str(error) or ANSWERED in str(error), error
        return ANSWERED in str(error)
    finally:
        owner.execute("rollback")
    raise AssertionError("the dataset does not exist")


def check_graph(draw: st.DataObject, arena: Arena, sessions: tuple[psycopg.Connection, psycopg.Connection]) -> None:
    """Make types and relations, and compare."""
    admin, owner = sessions
    maker = Maker(draw, admin, arena.names | {"superuser": "postgres", "group": "dbdp_data_owner"})
    try:
        for _ in range(draw.draw(st.integers(0, 6))):
            maker.type()
        for relation in [*(maker.relation() for _ in range(2)), maker.view()]:
            for mode, is_written in (("access share", False), ("row exclusive", True)):
                expected = not relation.reaches_others(is_written)
                assert answered(owner, relation, mode) == expected, (relation, mode)
    finally:
        admin.execute("set client_min_messages = error")
        admin.execute(f"drop schema {maker.schema} cascade")


@settings(GENERATED, max_examples=15)
@given(draw=st.data())
@pytest.mark.attack("types")
def test_a_call_is_refused_exactly_if_others_code_is_reachable(arena, sessions, draw):
    """The control is `test_no_type_within_ones_own_types_acts`: such code would act with the owner's rights."""
    check_graph(draw, arena, sessions)


@pytest.mark.slow
@settings(GENERATED)
@given(draw=st.data())
@pytest.mark.attack("types")
def test_no_graph_of_types_hides_code_of_others(arena, sessions, draw):
    """As above, with more examples."""
    check_graph(draw, arena, sessions)
