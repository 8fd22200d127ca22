"""Somebody whose code others fire: it must neither spend, amend nor see with their rights.

A role that may make tables makes one with a trigger, a view, a default, …; an owner, an analyst or a superuser uses it.
The code runs with the rights of its owner (SECURITY DEFINER), or by PostgreSQL's rules with those of who fires it.
"""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
import pytest
from attacker import DECLARED, REGISTER, ROWS, TRAIN, Arena, allow, attempt, refused
from pairs import each_value_quick, others_slow

pytestmark = pytest.mark.security

# What may not be done for others: {d} is a dataset, {r} the role that wants it, {m} a model.
ACTS = {
    "grant training": "dbdp.grant_training('{d}', '{r}')",
    "revoke training": "dbdp.revoke_training('{d}', '{a}')",
    "grant prediction": "dbdp.grant_prediction({m}, '{r}')",
    "renew": "dbdp.renew_budget('{d}', 'because', epsilon => 9)",
    "redeclare": "dbdp.redeclare('{d}', 'because', positive => '0', negative => '1')",
    "drop": "dbdp.drop_dataset('{d}')",
    "register": "dbdp.register_dataset('{d}_2', '{s}.{d}_2', 'y', '1', "
    '\'{{"x": {{"length": 3, "norm": 1}}}}\', 1, 1e-6)',
    "train": "(select model from dbdp.dp_logreg('{d}', 1, algorithm => 'bolt_on', batch_size => 20))",
    "tune": "(select model from dbdp.dp_tune('{d}', '[{{\"epochs\": 1}}, {{\"epochs\": 2}}]', 1, "
    "algorithm => 'bolt_on', batch_size => 10))",
    "train groups": "(select count(*) from "
    "dbdp.dp_train_groups('{d}', 'g', '{{a}}', 1, algorithm => 'bolt_on', batch_size => 20))",
    "score": "dbdp.dp_score({m}, '{d}', 'accuracy', 1)",
    "class balance": "dbdp.dp_class_balance('{d}', 1)",
    "summarize": "(select summary from dbdp.dp_summarize('{d}', 1, 1e-6))",
    "bounds": "dbdp.dp_bounds('{d}', 'y', 1)",
    "categories": "(select max(plus_minus) from dbdp.dp_categories('{d}', 'y', 9, 1e-6))",
    "charge": '(select ledger_id from dbdp_internal.charge(\'{d}\', \'{{"algorithm": "x", "guarantee": '
    '{{"epsilon": 1, "delta": 0, "event": {{"event": "ZCDpEvent", "rho": 1}}}}}}\'))',
}
# How others fire it: {a} is the act as an expression, {t} the name of the trap, {f} and {tr} functions that do it.
TRAPS = {
    "a view": ("create view {t} as select {f}() as i", "select * from {t}"),
    "a view of its own caller": ("create view {t} with (security_invoker) as select {f}() as i", "select * from {t}"),
    "a cursor on a view": (
        "create view {t} as select {f}() as i",
        "begin; declare c cursor for select * from {t}; fetch c; commit",
    ),
    "a trigger": (
        "create table {t} (i int); create trigger tr before insert on {t} {tr}",
        "insert into {t} values (1)",
    ),
    "a deferred trigger": (
        "create table {t} (i int); create constraint trigger tr after insert on {t} deferrable initially deferred {tr}",
        "begin; insert into {t} values (1); set constraints all deferred; commit",
    ),
    "a trigger on truncate": (
        "create table {t} (i int); create trigger tr before truncate on {t} execute function {trigger}()",
        "truncate {t}",
    ),
    "a trigger of a partition": (
        "create table {t} (i int) partition by list (i); create table {t}_1 partition of {t} default; "
        "create trigger tr before insert on {t}_1 {tr}",
        "insert into {t} values (1)",
    ),
    "a default": ("create table {t} (i int default {f}(), j int)", "insert into {t} (j) values (1)"),
    "a generated column": (
        "create table {t} (i int, j int generated always as ({f}_of(i)) stored)",
        "insert into {t} (i) values (1)",
    ),
    "a CHECK constraint": ("create table {t} (i int check ({f}() = 1))", "insert into {t} values (1)"),
    "a rule": (
        "create table {t} (i int); create rule r as on insert to {t} do also select {f}()",
        "insert into {t} values (1)",
    ),
    "an index": ("create table {t} (i int); create index on {t} ({f}_of(i))", "insert into {t} values (1)"),
    "the predicate of an index": (
        "create table {t} (i int); create index on {t} (i) where {f}_of(1) = 1",
        "select * from {t} where i = 1",
    ),
    "statistics": (
        "create table {t} (i int, j int); create statistics {t}_s on (i + {f}_of(1)), j from {t}",
        "select * from {t} where i = 1",
    ),
    "a policy": (
        "create table {t} (i int); insert into {t} values (1); alter table {t} enable row level security; "
        "create policy p on {t} using ({f}() = 1)",
        "select * from {t}",
    ),
    "a view that is dropped while it is read": (
        "create function {t}_drop() returns int language plpgsql security definer as "
        "$$ begin execute 'drop view {t}'; return 1; end $$; "
        "create view {t} as select {t}_drop() as gone, {f}() as i",
        "select * from {t}",
    ),
    "a cast of a column's type": (
        "create type {t}_type as enum ('a'); create function {t}_cast({t}_type) returns text language plpgsql as "
        "$$ begin perform {f}(); return 'a'; end $$; "
        "create cast ({t}_type as text) with function {t}_cast({t}_type); "
        "create table {t} (i {t}_type); insert into {t} values ('a')",
        "select i::text from {t}",
    ),
    "a cast of a column's type into a table of one's own": (
        "create type {t}_type as enum ('a'); create function {t}_cast({t}_type) returns text language plpgsql as "
        "$$ begin perform {f}(); return 'a'; end $$; "
        "create cast ({t}_type as text) with function {t}_cast({t}_type) as assignment; "
        "create table {t} (i {t}_type); insert into {t} values ('a')",
        "create temporary table copied (i text); insert into copied select i from {t}; drop table copied",
    ),
    "a cast of a row": (
        "create table {t} (i int); insert into {t} values (1); create function {t}_cast({t}) returns text "
        "language plpgsql as $$ begin perform {f}(); return 'a'; end $$; "
        "create cast ({t} as text) with function {t}_cast({t})",
        "select r::text from {t} as r",
    ),
}
RIGHTS = {"with its owner's rights": "security definer", "with the firer's rights": ""}


@dataclass(frozen=True)
class Trapper:
    """The rival, who owns a trap, on a dataset of the owner's on which the analyst may train."""

    arena: Arena
    session: psycopg.Connection
    admin: psycopg.Connection
    dataset: str
    model: int

    @property
    def schema(self) -> str:
        return self.arena.names["rival"]

    def act(self, word: str) -> str:
        names = self.arena.names
        return ACTS[word].format(d=self.dataset, r=names["rival"], a=names["analyst"], s=names["owner"], m=self.model)

    def prepare(self, action: str, rights: str) -> None:
        """Have the functions {f}, {f}_of and a trigger do it, and note as whom they ran and what came of it."""
        s = self.schema
        body = f"""declare done text; begin
            begin perform {action}; done := 'done'; exception when others then done := sqlstate; end;
            perform setval('{s}.ran', nextval('{s}.ran')); perform {s}.note(current_user, done); return %s; end"""
        self.session.execute(f"""
            create or replace function {s}.f() returns int language plpgsql {rights} as $$ {body % 1} $$;
            create or replace function {s}.f_of(int) returns int language plpgsql immutable
            as $$ begin return {s}.f(); end $$;
            create or replace function {s}.trigger() returns trigger language plpgsql {rights}
            as $$ {body % "new"} $$""")

    def plant(self, trap: str) -> str:
        """Make a trap; return what fires it."""
        made, fired = TRAPS[trap]
        name = f"{self.schema}.trap_{secrets.token_hex(4)}"
        words = {"t": name, "f": f"{self.schema}.f", "trigger": f"{self.schema}.trigger"}
        words["tr"] = f"for each row execute function {self.schema}.trigger()"
        bare = name.partition(".")[2]
        self.session.execute(made.replace("{t}_s", f"{bare}_s").format(**words))
        self.session.execute(f"grant all on {name} to public")
        return fired.format(**words)

    def noted(self) -> list[tuple[str, str]]:
        """As whom the code ran, and what came of it; forget it."""
        rows = self.admin.execute(f"delete from {self.schema}.seen returning who, done").fetchall()
        return [(who, done) for who, done in rows]

    def ledger(self) -> list[object]:
        """All that the acts would change."""
        looks = (
            "(select array_agg(a.role || coalesce(a.revoked_at::text, '') order by a.id) from dbdp.allowance as a)",
            "(select array_agg(d.name || d.declaration::text || coalesce(d.dropped_at::text, '') order by d.id) "
            "from dbdp.dataset as d)",
            "(select count(*) from dbdp.model)",
            "(select count(*) from dbdp.prediction_grant)",
            "(select array_agg(s.last_value order by s.sequencename) from pg_sequences as s "
            "where s.schemaname = 'dbdp' and s.sequencename ~ '^(allowance_)?(charge|leak)_')",
        )
        return list(self.admin.execute(f"select {', '.join(looks)}").fetchone())


@pytest.fixture
def trapper(arena: Arena, admin: psycopg.Connection, owner: psycopg.Connection, dataset: str) -> Iterator[Trapper]:
    """Notes are written by a function of a superuser: a table of the rival's would be a trap itself.

    What autovacuum fires in a table of an earlier test is not noted.
    """
    owner.execute(f"create table {dataset}_2 as table {dataset}")
    model = owner.execute(TRAIN, (dataset,)).fetchone()[0]
    session, schema = arena.session("rival"), arena.names["rival"]
    admin.execute(f"""
        create table if not exists {schema}.seen (who name, done text);
        create sequence if not exists {schema}.ran;
        alter table {schema}.seen owner to postgres; alter sequence {schema}.ran owner to postgres;
        grant all on sequence {schema}.ran to public;
        create or replace function {schema}.note(name, text) returns void language sql security definer
        as $$ insert into {schema}.seen select $1, $2 from pg_stat_activity as a
        where a.pid = pg_backend_pid() and a.backend_type = 'client backend' $$""")
    admin.execute(f"truncate {schema}.seen")
    yield Trapper(arena, session, admin, dataset, model)


@pytest.fixture(scope="module")
def superuser(arena: Arena) -> Iterator[psycopg.Connection]:
    """One session for all tests: a backend loads Python but once."""
    with arena.admin() as session:
        yield session


def victims(trapper: Trapper, superuser: psycopg.Connection) -> dict[str, psycopg.Connection]:
    sessions = {"owner": trapper.arena.session("owner"), "superuser": superuser}
    for session in sessions.values():
        session.execute("set constraint_exclusion = on")
    return sessions


@pytest.mark.parametrize("trap", others_slow(list(TRAPS), *list(TRAPS)[::3]))
@pytest.mark.attack("traps")
def test_no_trap_grants_with_the_rights_of_who_fires_it(trapper, superuser, trap):
    """The control: with neither check the code has the rights of the session, or of who fires it."""
    before = trapper.ledger()
    for rights in RIGHTS.values():
        trapper.prepare(trapper.act("grant training"), rights)
        for victim, session in victims(trapper, superuser).items():
            session.execute(trapper.plant(trap))
            outcomes = trapper.noted()
            assert outcomes or (trap, victim) == ("a policy", "superuser")
            assert {done for _, done in outcomes} <= {"DP001"}
            if rights:
                assert {who for who, _ in outcomes} <= {trapper.schema}
    assert trapper.ledger() == before


@pytest.mark.parametrize("act", others_slow(list(ACTS), *list(ACTS)[::3]))
@pytest.mark.attack("traps")
def test_no_act_is_done_for_a_trap(trapper, superuser, owner, act):
    """The control: the owner does it by the same expression, and it is seen."""
    before = trapper.ledger()
    for rights in RIGHTS.values():
        trapper.prepare(trapper.act(act), rights)
        for trap in ("a trigger", "a view"):
            for session in victims(trapper, superuser).values():
                session.execute(trapper.plant(trap))
    outcomes = trapper.noted()
    assert (len(outcomes), {done for _, done in outcomes}) == (8, {"DP001"})
    assert trapper.ledger() == before
    owner.execute(f"do $$ begin perform {trapper.act(act)}; end $$")
    assert trapper.ledger() != before


@pytest.mark.parametrize("act", ["train", "class balance", "tune", "score"])
@pytest.mark.attack("traps")
def test_no_trap_spends_an_analysts_allowance(trapper, owner, analyst, act):
    """The control: the analyst spends it by the same expression."""
    owner.execute("select dbdp.grant_prediction(%s, %s)", (trapper.model, trapper.arena.names["analyst"]))
    before = trapper.ledger()
    for rights in RIGHTS.values():
        trapper.prepare(trapper.act(act), rights)
        for trap in ("a deferred trigger", "a view", "a policy"):
            analyst.execute(trapper.plant(trap))
            assert {done for _, done in trapper.noted()} == {"DP001"}
    assert trapper.ledger() == before
    analyst.execute(f"do $$ begin perform {trapper.act(act)}; end $$")
    assert trapper.ledger() != before


@pytest.mark.attack("hidden-traps")
def test_a_group_that_all_are_members_of_owns_no_harmless_trap(trapper, admin):
    """A member gives its view, or its function, to the group: so it belongs to a role that the victim is in."""
    group = "dbdp_data_owner"
    for rights in RIGHTS.values():
        trapper.prepare(trapper.act("grant training"), rights)
        admin.execute(f"grant create on schema {trapper.schema} to {group}")
        trapper.session.execute(f"alter function {trapper.schema}.f() owner to {group}")
        sql, before = trapper.plant("a view"), trapper.ledger()
        trapper.session.execute(f"alter view {sql.rpartition(' ')[2]} owner to {group}")
        for acting in ("", f"set role {group}; "):
            trapper.arena.session("owner").execute(acting + sql)
            assert {done for _, done in trapper.noted()} == {"DP001"}
            assert trapper.ledger() == before
        trapper.session.execute(f"alter function {trapper.schema}.f() owner to {trapper.schema}")


def name_of(trapper: Trapper, victim: str) -> str:
    return "postgres" if victim == "superuser" else trapper.arena.names[victim]


# Types of one's own that are made of another role's domain {d}, and a value.
NESTED = {
    "the domain": ("create table {v} (x {d})", "1"),
    "a domain": ("create domain {v}_type as {d}; create table {v} (x {v}_type)", "1"),
    "an array": ("create table {v} (x {d}[])", "{{1}}"),
    "a domain over an array": ("create domain {v}_type as {d}[]; create table {v} (x {v}_type)", "{{1}}"),
    "a row": ("create type {v}_type as (x {d}); create table {v} (x {v}_type)", "(1)"),
    "a table's row": ("create table {v}_type (x {d}); create table {v} (x {v}_type)", "(1)"),
    "a range": ("create type {v}_type as range (subtype = {d}); create table {v} (x {v}_type)", "[1,2]"),
    "a multirange": (
        "create type {v}_type as range (subtype = {d}, multirange_type_name = {v}_many); create table {v} (x {v}_many)",
        "{{[1,2]}}",
    ),
}


@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.attack("types")
def test_no_type_within_ones_own_types_acts(trapper, nested):
    """The control: the domain's check runs, and the owner does the same in its place."""
    before, owner = trapper.ledger(), trapper.arena.session("owner")
    trapper.prepare(trapper.act("grant training"), "")
    name, domain = f"nested_{secrets.token_hex(4)}", f"{trapper.schema}.d_{secrets.token_hex(4)}"
    trapper.session.execute(f"create domain {domain} as int check ({trapper.schema}.f_of(value) = 1)")
    made, value = (text.format(v=name, d=domain) for text in NESTED[nested])
    owner.execute(made)
    owner.execute(f"insert into {name} values ('{value}')")
    assert {done for _, done in trapper.noted()} == {"DP001"}
    assert trapper.ledger() == before
    owner.execute(f"drop table {name}; do $$ begin perform {trapper.act('grant training')}; end $$")
    assert trapper.ledger() != before


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
@pytest.mark.parametrize("trigger", ["trigger {n}", "constraint trigger {n}"])
@pytest.mark.attack("traps")
def test_no_trigger_of_another_role_on_a_table_of_ones_own_acts(trapper, superuser, trigger, level):
    """Whoever has the privilege TRIGGER may make one, which has no owner; the old snapshot does not show it."""
    before, rival = trapper.ledger(), trapper.schema
    timing = "after insert" if "constraint" in trigger else "before insert"
    for victim, session in victims(trapper, superuser).items():
        name, own = f"{trapper.arena.names['owner']}.host_{secrets.token_hex(4)}", name_of(trapper, victim)
        trapper.admin.execute(f"create table {name} (i int); grant all on {name} to public")
        trapper.admin.execute(f"alter table {name} owner to {own}")
        for rights in RIGHTS.values():
            trapper.prepare(trapper.act("grant training"), rights)
            old(session, level)
            made = trigger.format(n=f"t_{secrets.token_hex(4)}")
            trapper.session.execute(f"create {made} {timing} on {name} for each row execute function {rival}.trigger()")
            session.execute(f"insert into {name} values (1)")
            session.execute("commit")
            assert {done for _, done in trapper.noted()} == {"DP001"}
        # As a superuser's or an owner's own function whose condition is the rival's, and so is not the function's.
        trapper.prepare(trapper.act("grant training"), "")
        body = "returns trigger language plpgsql as 'begin return new; end'"
        trapper.admin.execute(f"create function {name}_f() {body}; alter function {name}_f() owner to {own}")
        trapper.session.execute(
            f"create trigger conditional before insert on {name} for each row "
            f"when (({rival}.f() + new.i) is not null) execute function {name}_f()"
        )
        session.execute(f"insert into {name} values (1)")
        assert {done for _, done in trapper.noted()} == {"DP001"}
        trapper.admin.execute(f"drop table {name}; drop function {name}_f")
    assert trapper.ledger() == before


@pytest.mark.parametrize("place", ["the table that was trained on", "a view that its code locked"])
@pytest.mark.attack("traps")
def test_a_training_excuses_no_later_use_of_what_it_locked(trapper, owner, place):
    """Of the rival's dataset, which the owner may train on and read. The control: the owner acts in its place."""
    before, name = trapper.ledger(), f"dealt_{secrets.token_hex(4)}"
    trapper.prepare(trapper.act("grant training"), "")
    view = trapper.plant("a view").rpartition(" ")[2]
    locking = f"lock table {view} in access share mode;" if "view" in place else ""
    body = "language plpgsql as $$ begin"
    trapper.session.execute(f"""
        create or replace function lock_it() returns void {body} {locking} end $$;
        create or replace function locking(int) returns int immutable {body}
        perform {trapper.schema}.lock_it(); return $1; end $$""")
    trapper.session.execute(f"create table {name} as {ROWS}")
    trapper.session.execute(f"create index on {name} (y) where {trapper.schema}.locking(1) = y")
    trapper.session.execute(f"grant select on {name} to public; grant usage on schema {trapper.schema} to public")
    trapper.session.execute(REGISTER, (name, f"{trapper.schema}.{name}", DECLARED, 100))
    trapper.session.execute("select dbdp.grant_training(%s, %s)", (name, trapper.arena.names["owner"]))
    used = f"select * from {view}"
    if "trained on" in place:
        used = f"select * from {trapper.schema}.{name} where y = 1"
    owner.execute("begin")
    owner.execute(TRAIN, (name,))
    if "trained on" in place:  # an index whose code acts, once it is planned for the owner
        trapper.session.execute(f"create index on {name} (y) where {trapper.schema}.f_of(1) = y")
    owner.execute(used)
    owner.execute("commit")
    assert {done for _, done in trapper.noted()} == {"DP001"}
    owner.execute(f"do $$ begin perform {trapper.act('grant training')}; end $$")
    assert trapper.ledger()[0] != before[0]


@pytest.mark.attack("traps")
def test_no_trap_stores_a_model_or_an_outcome_for_a_charge(trapper, owner):
    """The control: the owner does both by the same calls."""
    charge = ACTS["charge"].format(d=trapper.dataset)
    receipt = '{{"algorithm": "x", "ledger": {number}}}'
    calls = (
        "dbdp_internal.record_outcome({number}, 'failed', 'by a trap')",
        f"dbdp_internal.store_release('{trapper.dataset}', '{{{{1, 2, 3}}}}', '{{{{0}}}}', '{receipt}')",
    )
    for call in calls:
        (number,) = owner.execute(f"select {charge}").fetchone()
        action = call.format(number=number)
        for rights in RIGHTS.values():
            trapper.prepare(action, rights)
            for trap in ("a trigger", "a view"):
                owner.execute(trapper.plant(trap))
                assert {done for _, done in trapper.noted()} == {"DP001"}
        owner.execute(f"do $$ begin perform {action}; end $$")


@pytest.mark.attack("hidden-traps")
def test_an_old_snapshot_does_not_hide_a_trap(trapper):
    """The table, or its code, is created after the snapshot was taken, so that catalogues do not show it to a query."""
    trapper.prepare(trapper.act("grant training"), "")
    for trap in ("a trigger", "a view", "the predicate of an index"):
        victim = trapper.arena.session("owner")
        victim.execute("begin isolation level repeatable read")
        victim.execute("select count(*) from pg_class")
        victim.execute(trapper.plant(trap))
        victim.execute("commit")
        assert {done for _, done in trapper.noted()} == {"DP001"}, trap


SEEN = """concat_ws(',',
    (select count(*) from dbdp.datasets_details where name = '{d}'),
    (select count(*) from dbdp.models_details where id = {m}),
    (select count(*) from dbdp.history_details where dataset = '{d}'),
    (select count(*) from dbdp.allowances_details where dataset = '{d}'),
    (select count(*) from dbdp.own_datasets where id in (select id from dbdp.dataset where name = '{d}')),
    (select count(*) from dbdp.open_datasets as o join dbdp.dataset as d on d.id = o.id where d.name = '{d}'),
    dbdp_internal.identity_of('{o}') = any (dbdp_internal.own_roles()))"""


@pytest.mark.attack("definer")
def test_owners_rights_code_sees_only_its_ledger(trapper, superuser, owner):
    """The control: the owner of the dataset sees it by the same query."""
    query = SEEN.format(d=trapper.dataset, m=trapper.model, o=trapper.arena.names["owner"])
    trapper.prepare(f"{trapper.schema}.note(current_user, {query})", "security definer")
    for session in victims(trapper, superuser).values():
        session.execute(trapper.plant("a view"))
        assert {done for _, done in trapper.noted()} == {"0,0,0,0,0,0,f", "done"}
    assert owner.execute(f"select {query}").fetchone() == ("1,1,1,2,1,1,t",)


# What runs the code of a table's owner as that owner: {t} is its table, with an index on {f}.
MAINTAINED = {
    "analyze": "analyze {t}",
    "vacuum": "vacuum analyze {t}",
    "reindex": "reindex table {t}",
    "an index": "create index on {t} (({f}(i) + 1))",
    "a refresh": "refresh materialized view {t}_m",
    "a definer": "select {d}()",
}


@pytest.mark.parametrize("maintained", others_slow(list(MAINTAINED), "analyze", "a definer"))
@pytest.mark.attack("set-role")
def test_code_of_a_role_sees_its_own_part_after_set_role(trapper, superuser, owner, maintained):
    """As the same role without SET ROLE; the control: the session itself sees its login's part after SET ROLE."""
    query = SEEN.format(d=trapper.dataset, m=trapper.model, o=trapper.arena.names["owner"])
    rival, group = trapper.schema, "dbdp_data_owner"
    trapper.prepare(f"{rival}.note(current_user, {query})", "")
    places = {rival: (f"{rival}.own", superuser), group: (f"{rival}.of_group", trapper.arena.session("owner"))}
    trapper.admin.execute(f"grant create on schema {rival} to {group}")
    for role, (table, session) in places.items():
        trapper.admin.execute(f"""
            create table {table} as select 1 as i; create index on {table} ({rival}.f_of(i));
            create materialized view {table}_m as select {rival}.f() as i;
            create function {table}_d() returns int language sql security definer as 'select {rival}.f()';
            alter table {table} owner to {role}; alter materialized view {table}_m owner to {role};
            alter function {table}_d() owner to {role}""")
        trapper.noted()
        for acting in ("reset role", f"set role {role}"):
            session.execute(acting)
            session.execute(MAINTAINED[maintained].format(t=table, f=f"{rival}.f_of", d=f"{table}_d"))
            assert set(trapper.noted()) == {(role, "0,0,0,0,0,0,f"), (role, "done")}, acting
            assert session.execute(f"select {query}").fetchone() == ("1,1,1,2,1,1,t",)
        session.execute("reset role")
        trapper.admin.execute(f"drop table {table}; drop materialized view {table}_m; drop function {table}_d")


@pytest.mark.attack("definer")
def test_owners_rights_code_predicts_only_with_its_models(trapper, owner):
    """Also where the session has used the model before; the control is the session's own call."""
    for function in ("predict", "predict_probability"):
        call = f"dbdp.{function}({trapper.model}, array[.1, .2, .3]::float8[])"
        trapper.prepare(call, "security definer")
        sql = trapper.plant("a view")
        assert owner.execute(f"select {call} is not null").fetchone() == (True,)
        owner.execute(sql)
        assert [done for _, done in trapper.noted()] == ["DP001"]
        assert owner.execute(f"select {call} is not null").fetchone() == (True,)
        owner.execute(
            f"create table mine_{function} as select dbdp.{function}({trapper.model}, x) as p from {trapper.dataset}"
        )


@pytest.mark.attack("own-code")
def test_what_is_ones_own_is_no_trap(arena, owner, analyst, dataset):
    """Own triggers, functions and results in own tables; a table that was trained on earlier in the transaction."""
    owner.execute(f"alter table {dataset} add check (y >= 0); create index on {dataset} ((y + 1))")
    analyst.execute("create table mine as select now() as at, 0::int8 as model")
    analyst.execute("begin")
    for _ in range(2):
        analyst.execute(
            "insert into mine select now(), model "
            f"from dbdp.dp_logreg('{dataset}', 1, algorithm => 'bolt_on', batch_size => 20)"
        )
    analyst.execute("commit")
    train = f"select model from dbdp.dp_logreg('{dataset}', 1, algorithm => 'bolt_on', batch_size => 20)"
    analyst.execute(f"create function mine() returns int8 language sql security definer as $$ {train} $$")
    analyst.execute("create view my_view as select mine() as model")
    analyst.execute("select * from my_view")
    assert attempt(arena.session("colleague"), f"select * from {arena.names['analyst']}.my_view") is not None
    analyst.execute("drop view my_view; drop function mine(); drop table mine")


@pytest.mark.attack("own-code")
def test_what_one_drops_oneself_is_no_trap(arena, analyst, dataset):
    """A table that makes place for another, and one that was used; a view that was used could be anybody's."""
    train = f"select model from dbdp.dp_logreg('{dataset}', 1, algorithm => 'bolt_on', batch_size => 20)"
    analyst.execute(f"create table results as {train}")
    analyst.execute(f"begin; drop table results; create table results as {train}")
    analyst.execute(f"insert into results {train}; drop table results; create temporary table results as {train}")
    analyst.execute(f"create table {dataset}_r (i int); insert into {dataset}_r values (1); table {dataset}_r")
    analyst.execute(f"drop table results; drop table {dataset}_r; {train}; commit")
    analyst.execute(f"create view results as {train}")
    with pytest.raises(psycopg.Error, match="used a view and then dropped it"):
        analyst.execute(f"begin; select * from results; drop view results; {train}")
    analyst.execute("rollback; drop view results")


@pytest.mark.attack("own-code")
def test_a_trigger_of_ones_own_is_no_trap(arena, analyst, dataset):
    """Nor one on a table in which others may write, but make no trigger."""
    analyst.execute("create table noted (model int8); grant select, insert on noted to public")
    analyst.execute("create function seen() returns trigger language plpgsql as 'begin return new; end'")
    analyst.execute("create trigger t before insert on noted for each row execute function seen()")
    analyst.execute(
        f"insert into noted select model from dbdp.dp_logreg('{dataset}', 1, algorithm => 'bolt_on', batch_size => 20)"
    )
    analyst.execute("drop table noted; drop function seen()")


@pytest.mark.attack("traps")
def test_the_refusal_names_the_relation_its_owner_and_the_remedy(arena, trapper, owner):
    trapper.session.execute("create table innocent (i int); grant all on innocent to public")
    owner.execute("begin")
    owner.execute(f"insert into {trapper.schema}.innocent values (1)")
    words = f"{trapper.schema}.innocent of role {trapper.schema}.*call dbdp in a separate transaction"
    with pytest.raises(psycopg.Error, match=words):
        owner.execute(TRAIN, (trapper.dataset,))
    owner.execute("rollback")
    owner.execute(TRAIN, (trapper.dataset,))
    trapper.session.execute("drop table innocent")


@pytest.mark.attack("superuser-change")
def test_superusers_renewal_leaves_the_dataset_its_owner(arena, admin, owner, dataset):
    """After a superuser's renewal and correction the dataset still belongs to its owner."""
    admin.execute("select dbdp.renew_budget(%s, 'because', epsilon => 9)", (dataset,))
    admin.execute("select dbdp.redeclare(%s, 'because', positive => '0', negative => '1')", (dataset,))
    assert owner.execute("select epsilon from dbdp.budget_details(%s)", (dataset,)).fetchone() == (9,)
    registered = "select registered_by from dbdp.datasets_details where name = %s"
    assert owner.execute(registered, (dataset,)).fetchone() == (arena.names["owner"],)
    admin.execute("select dbdp.grant_training(%s, %s)", (dataset, arena.names["analyst"]))
    owner.execute("select dbdp.revoke_training(%s, %s)", (dataset, arena.names["analyst"]))


# --- old snapshots --------------------------------------------------------------------------------------

# What an owner does, after which the analyst's old snapshot may not spend.
CHANGES = {
    "a revoked allowance": "select dbdp.revoke_training('{d}', '{a}')",
    "a lowered allowance": "select dbdp.grant_training('{d}', '{a}', 1e-3)",
    "a dropped dataset": "select dbdp.drop_dataset('{d}')",
    "a renewed budget": "select dbdp.renew_budget('{d}', 'because')",
    "a corrected declaration": "select dbdp.redeclare('{d}', 'because', positive => '0', negative => '1')",
}
SPENDING = {
    "train": "select dbdp.dp_logreg('{d}', 1, algorithm => 'bolt_on', batch_size => 20, epochs => 2)",
    "tune": """select dbdp.dp_tune('{d}', '[{{"epochs": 1}}, {{"epochs": 2}}]', 1,
        algorithm => 'bolt_on', batch_size => 10)""",
    "groups": "select * from dbdp.dp_train_groups('{d}', 'g', '{{a}}', 1, algorithm => 'bolt_on', batch_size => 20)",
    "score": "select dbdp.dp_score({m}, '{d}', 'accuracy', 1)",
    "evaluate": "select * from dbdp.evaluate({m}, '{d}', 1)",
    "class balance": "select dbdp.dp_class_balance('{d}', 1)",
    "summarize": "select dbdp.dp_summarize('{d}', 1, 1e-6)",
}
LEVELS = ["read committed", "repeatable read"]  # a serializable transaction spends nothing: test_environments
STATES = dict(zip(LEVELS, ("DP001", "40001"), strict=True))
Odometers = Callable[[], list[tuple[int]]]


@pytest.fixture
def odometers(admin: psycopg.Connection) -> Odometers:
    sql = (
        "select last_value from pg_sequences where schemaname = 'dbdp' and sequencename ~ 'charge|leak' "
        "order by sequencename"
    )
    return lambda: admin.execute(sql).fetchall()


def old(session: psycopg.Connection, level: str) -> None:
    """Begin a transaction whose snapshot is taken."""
    session.execute(f"begin isolation level {level}")
    session.execute("select count(*) from dbdp.datasets_details")


def check_bound(
    session: psycopg.Connection, level: str, sql: str, change: Callable[[], object], read: Odometers, state: str | None
) -> None:
    """Spend in a transaction, which is the control; after the change the same transaction spends nothing."""
    old(session, level)
    before = read()
    session.execute(sql)
    assert read() != before
    session.execute("savepoint s")
    change()
    before = read()
    if state is None:
        session.execute(sql)
    else:
        with refused(*state.split()):
            session.execute(sql)
    assert (read() == before) == (state is not None)
    session.execute("rollback")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.attack("old-snapshots")
def test_change_of_rights_binds_earlier_transactions(arena, analyst, owner, dataset, odometers, change, level):
    state: str | None = STATES[level]
    if change == "a dropped dataset":  # dbdp_owner's right to read it goes at once
        state = "DP001 40001"
    if level == "read committed" and change == "a corrected declaration":  # it is read again, and holds
        state = None
    sql = CHANGES[change].format(d=dataset, a=arena.names["analyst"])
    check_bound(analyst, level, SPENDING["train"].format(d=dataset), lambda: owner.execute(sql), odometers, state)


@pytest.mark.parametrize(
    ("spending", "change"), each_value_quick(list(SPENDING), ["a revoked allowance", "a lowered allowance"])
)
@pytest.mark.attack("old-snapshots")
def test_an_old_snapshot_spends_by_no_interface(arena, analyst, owner, dataset, odometers, change, spending):
    model = analyst.execute(TRAIN, (dataset,)).fetchone()[0]
    spend, sql = (
        SPENDING[spending].format(d=dataset, m=model),
        CHANGES[change].format(d=dataset, a=arena.names["analyst"]),
    )
    check_bound(analyst, "repeatable read", spend, lambda: owner.execute(sql), odometers, "40001")


@pytest.mark.attack("old-snapshots")
def test_a_client_with_an_old_snapshot_charges_nothing(arena, owner, dataset, odometers):
    """A data owner with an allowance that may read the table, as a client does: dbdp_internal.charge."""
    name, rival = arena.names["rival"], arena.session("rival")
    owner.execute(f"grant select on {dataset} to {name}")
    allow(owner, dataset, name)
    charge = f"select {ACTS['charge'].format(d=dataset)}"
    revoke = f"select dbdp.revoke_training('{dataset}', '{name}')"
    check_bound(rival, "repeatable read", charge, lambda: owner.execute(revoke), odometers, "40001")


@pytest.fixture
def team(arena: Arena, admin: psycopg.Connection, owner: psycopg.Connection, dataset: str) -> Iterator[str]:
    """A group that may train on the dataset, with the stranger as its member."""
    name = f"team_{secrets.token_hex(4)}"
    admin.execute(f"create role {name} in role dbdp_analyst; grant {name} to {arena.names['stranger']}")
    allow(owner, dataset, name)
    yield name
    owner.execute("select dbdp.revoke_training(%s, %s)", (dataset, name))
    admin.execute(f"drop owned by {name}; drop role {name}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.attack("old-snapshots")
def test_a_membership_that_was_revoked_ends_at_once(arena, admin, dataset, odometers, team, level):
    stranger = arena.names["stranger"]
    change = f"grant dbdp_analyst to {stranger}; revoke {team} from {stranger}"
    with arena.login("stranger") as member:
        train = SPENDING["train"].format(d=dataset)
        check_bound(member, level, train, lambda: admin.execute(change), odometers, "DP001")
    admin.execute(f"revoke dbdp_analyst from {stranger}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.attack("old-snapshots")
def test_own_allowance_binds_a_group_member_at_once(arena, owner, dataset, odometers, team, level):
    """A lower one than the group's, which the member's old snapshot does not show; also one that is granted again."""
    member = arena.names["stranger"]
    grant = f"select dbdp.grant_training('{dataset}', '{member}', 1e-3)"
    for _ in range(2):
        with arena.login("stranger") as session:
            train = SPENDING["train"].format(d=dataset)
            check_bound(session, level, train, lambda: owner.execute(grant), odometers, STATES[level])
        owner.execute("select dbdp.revoke_training(%s, %s)", (dataset, member))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", ["a model", "a summary"])
@pytest.mark.attack("old-snapshots")
def test_a_grant_that_was_revoked_releases_nothing(arena, analyst, owner, dataset, odometers, what, level):
    """Of prediction with a model, which is scored, or with a summary, with which a model is trained."""
    summarize, grantee = "select summary from dbdp.dp_summarize(%s, 1, 1e-6)", arena.names["analyst"]
    number = owner.execute(TRAIN if what == "a model" else summarize, (dataset,)).fetchone()[0]
    owner.execute("select dbdp.grant_prediction(%s, %s)", (number, grantee))
    spend = SPENDING["score"].format(d=dataset, m=number)
    if what == "a summary":
        spend = f"select model from dbdp.dp_train('{dataset}', 1, 1e-6, summary => {number})"
    revoke = f"select dbdp.revoke_prediction({number}, '{grantee}')"
    check_bound(analyst, level, spend, lambda: owner.execute(revoke), odometers, STATES[level])


@pytest.mark.attack("open-revocation")
def test_owner_in_a_revocation_stops_only_its_role(arena, analyst, owner, dataset):
    """That one waits, and is refused once the revocation is committed."""
    with arena.login("colleague") as colleague, ThreadPoolExecutor(1) as pool:
        owner.execute("begin")
        owner.execute("select dbdp.revoke_training(%s, %s)", (dataset, arena.names["analyst"]))
        waiting = pool.submit(attempt, analyst, TRAIN, dataset)
        colleague.execute("set lock_timeout = '30s'")
        colleague.execute(TRAIN, (dataset,))
        assert not waiting.done()
        owner.execute("commit")
        assert waiting.result() == "DP001"
