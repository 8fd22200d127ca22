"""A dataset is declared once, as public facts; each error in it is reported before anything is stored."""

import json
from typing import Any

import psycopg
import pytest

from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.estimators.linear import LogisticRegression

TRAIN = "select model from dbdp.dp_logreg(%s, epsilon => 1, algorithm => 'bolt_on', batch_size => 5)"
MIXED = """
create type mood as enum ('sad', 'happy', 'it''s');
create domain share as float8 check (value >= 0);
create domain nested as share;
create domain moody as mood;
create domain list as float8[];
create table mixed (
  e mood, d share, dd nested, de moody, b boolean, c char(5), v varchar(9), n numeric, i bigint, s smallint, r real,
  bits boolean, y int);
insert into mixed
select 'happy', 0.5, 0.5, 'sad', i % 2 = 0, 'ab', 'cd', 0.25, i, i % 3, 0.5, i % 2 = 0, i % 2
from generate_series(1, 30) as i"""
MIXED_FEATURES = {
    "d": [0, 1],
    "dd": [0, 1],
    "n": [0, 1],
    "i": [0, 30],
    "r": [0, 1],
    "bits": [0, 1],
    "e": ["sad", "happy", "it's"],
    "de": ["sad"],
    "b": ["true", "false"],
    "c": ["ab", "x"],
    "v": ["cd"],
    "s": ["0", "1"],
}


def nothing_left(connection: psycopg.Connection, schema: str) -> bool:
    """No row, no odometer more than datasets, no grant on a table of the schema."""
    sql = """
select (select count(*) from dbdp.dataset where source_name like %(schema)s || '.%%')
     + (select count(*) from pg_class where relkind = 'S' and relname ~ '^(charge|leak)_\\d+$')
     - 2 * (select count(*) from dbdp.dataset)
     + (select count(*) from pg_class as c, aclexplode(c.relacl) as a
        where c.relnamespace = %(schema)s::regnamespace and a.grantee = 'dbdp_owner'::regrole)"""
    return connection.execute(sql, {"schema": schema}).fetchone() == (0,)


def test_every_type_of_column_can_be_declared_and_trained_on(connection, schema, register):
    connection.execute(MIXED)
    name = register("mixed", features=MIXED_FEATURES)
    connection.execute(TRAIN, (name,))
    names = connection.execute("select feature_names from dbdp.models_details where dataset = %s", (name,)).fetchone()[
        0
    ]
    assert names[:6] == ["d", "dd", "n", "i", "r", "bits"]
    assert names[6:9] == ["e=sad", "e=happy", "e=it's"]


def test_every_type_of_column_can_be_trained_on_from_a_client(connection, database, schema, register):
    connection.execute(MIXED)
    name = register("mixed", features=MIXED_FEATURES)
    fitted = LogisticRegression(epsilon=1.0, algorithm="bolt_on", batch_size=5, progress=False).fit(database, name)
    assert len(fitted.feature_names_) == len(fitted.coef_[0]) == 17


PADDED = {  # types whose casts may take memory by their padding, and how the message writes them
    "bpchar": "bpchar",
    "char(16385)": r"character\(16385\)",
    "domain over bpchar": "bpchar",
    "domain over a domain over char(16385)": r"character\(16385\)",
}
PARTS = {  # where a column may be in a registration
    "label": {"features": {"a": [0, 20]}, "label": "c", "positive": "yes"},
    "category": {"features": {"c": ["yes"]}},
    "unit": {"features": {"a": [0, 20]}, "unit": "c", "max_rows": 2},
    "public column": {"features": {"a": [0, 20]}, "public_columns": "{c}"},
}


def column_of_type(connection: psycopg.Connection, kind: str) -> None:
    """A table k with a column c of a type, or of a domain over it."""
    *domains, kind = kind.split(" over ")
    for number, _ in enumerate(domains):
        connection.execute(f"create domain padded_{number} as {kind}")
        kind = f"padded_{number}"
    connection.execute(f"create table k (a int, y int, c {kind}); insert into k values (1, 1, 'yes'), (0, 0, 'no')")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.attack("long-values")
def test_a_long_padded_type_is_refused(connection, schema, register, kind, part):
    """The control is the longest one that is accepted."""
    column_of_type(connection, kind)
    with pytest.raises(psycopg.Error, match=rf"column 'c' .* is {PADDED[kind]}; .* alter its type to text, or to char"):
        register("k", **PARTS[part])
    connection.execute("alter table k alter c type char(16384)")
    register("k", **PARTS[part])


def test_a_column_made_longer_is_refused_before_the_charge(connection, schema, register, spent):
    connection.execute("create table k as select 'yes'::char(3) as c, i % 2 as y from generate_series(1, 20) as i")
    name = register("k", features={"c": ["yes", "no"]})
    connection.execute("alter table k alter c type bpchar")
    with pytest.raises(psycopg.Error, match=r"column 'c' .* was character when .* is now bpchar"):
        connection.execute("select dbdp.dp_logreg(%s, 1)", (name,))
    assert spent(name) == (0, 0)
    connection.execute("alter table k alter c type char(9)")
    connection.execute("select dbdp.dp_logreg(%s, 1)", (name,))


@pytest.mark.parametrize("interface", ["server", "client"])
def test_names_may_be_as_weird_as_sql_allows(connection, database, schema, register, interface):
    weird = f'"We ird{schema}"."Ta\'b""le\\x"'
    connection.execute(f"""
create schema "We ird{schema}"; grant usage on schema "We ird{schema}" to dbdp_owner;
create type "We ird{schema}"."Mo'o""d" as enum ('a''b', 'c"d');
create table {weird} ("Col""um'n %" float8, "sel;ect" "We ird{schema}"."Mo'o""d", "y Y" text);
insert into {weird} select i, 'a''b', case when i % 2 = 0 then 'p''o\\s' else 'no' end from generate_series(1, 20) i""")
    try:
        features = {"Col\"um'n %": [0, 20], "sel;ect": ["a'b", 'c"d']}
        name = register(weird, name=f"it's {schema}\"\\", label="y Y", positive="p'o\\s", features=features)
        if interface == "server":
            connection.execute(TRAIN, (name,))
        else:
            LogisticRegression(epsilon=1.0, algorithm="bolt_on", batch_size=5, progress=False).fit(database, name)
        model = connection.execute(
            "select id, feature_names from dbdp.models_details where dataset = %s", (name,)
        ).fetchone()
        assert model[1] == ["Col\"um'n %", "sel;ect=a'b", 'sel;ect=c"d']
        scored = connection.execute(f"select dbdp.predict(%s, w) from {weird} as w", (model[0],)).fetchall()
        assert len(scored) == 20
        connection.execute("select dbdp.drop_dataset(%s)", (name,))
    finally:
        connection.execute(f'drop schema "We ird{schema}" cascade')


@pytest.mark.parametrize("interface", ["server", "client"])
def test_a_partitioned_table_is_trained_on_with_all_partitions(connection, database, schema, register, interface):
    connection.execute("""
create table p (x float8[], y int, k int) partition by list (k);
create table p0 partition of p for values in (0);
create table p1 partition of p for values in (1) partition by list (y);
create table p10 partition of p1 for values in (0);
create table p11 partition of p1 default;
insert into p select array[.1, .2, .3], i % 2, i % 3 % 2 from generate_series(1, 30) i""")
    name = register("p")
    if interface == "server":
        connection.execute(TRAIN, (name,))
    else:
        LogisticRegression(epsilon=1.0, algorithm="bolt_on", batch_size=5, progress=False).fit(database, name)
    assert connection.execute("select rows from dbdp.datasets_details where name = %s", (name,)).fetchone() == (30,)


def test_partition_of_a_registered_table_has_no_budget(connection, schema, register):
    """Else each record would be paid for from two budgets."""
    connection.execute("""
create table p (x float8[], y int) partition by list (y);
create table p0 partition of p for values in (0);
create table p1 partition of p for values in (1);
insert into p select array[.1, .2, .3], i % 2 from generate_series(1, 30) i""")
    register("p")
    with pytest.raises(psycopg.Error, match=r"registered already|partition"):
        register("p0")
    connection.execute("select dbdp.drop_dataset(%s)", (f"{schema}_p",))
    register("p1")
    with pytest.raises(psycopg.Error, match=r"registered already|partition"):
        register("p")


UNSOUND_SOURCES = {
    "view": ("create view s as select * from t", "is not an ordinary table"),
    "materialised view": ("create materialized view s as select * from t", "is not an ordinary table"),
    "temporary table": ("create temporary table s as select * from t", "is not an ordinary table"),
    "sequence": ("create sequence s", "is not an ordinary table"),
    "foreign table": (
        "create extension if not exists file_fdw; create server files foreign data wrapper file_fdw;"
        "create foreign table s (x float8[], y int) server files options (filename '/dev/null')",
        "is not an ordinary table",
    ),
    "inheritance": ("create table s (like t); create table child () inherits (s)", "has inheriting tables"),
    "row-level security": ("create table s (like t); alter table s enable row level security", "row-level security"),
    "foreign partition": (
        "create extension if not exists file_fdw; create server files foreign data wrapper file_fdw;"
        "create table s (x float8[], y int) partition by list (y); create table s0 partition of s for values in (0);"
        "insert into s select * from t where y = 0;"
        "create foreign table s1 partition of s for values in (1) server files options (filename '/dev/null')",
        "foreign",
    ),
    "row-level security of a partition": (
        "create table s (x float8[], y int) partition by list (y); create table s0 partition of s for values in (0);"
        "insert into s select * from t where y = 0; alter table s0 enable row level security",
        "row-level security",
    ),
}


@pytest.mark.parametrize("kind", UNSOUND_SOURCES)
def test_a_source_whose_rows_are_not_its_own_is_refused(connection, schema, table, register, kind):
    statements, message = UNSOUND_SOURCES[kind]
    connection.execute(statements)
    try:
        with pytest.raises(psycopg.Error, match=message):
            register("s")
        assert nothing_left(connection, schema)
    finally:
        connection.execute("drop server if exists files cascade")


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"features": {}}, "features is empty; declare at least one column with its bounds or categories"),
    ({"features": {"y": [0, 1]}}, "column 'y' is the label and cannot be a feature too"),
    ({"negative": "1"}, "positive and negative are both '1'; they must differ"),
    ({"features": {"x": {"length": 3, "norm": 1}, "a": [0, 1]}}, "array column 'x' must be the only feature"),
    ({"features": {"a": "x"}}, r"feature 'a' is declared as \"x\"; give \[lower, upper\]"),
    ({"features": {"a": []}}, r"feature 'a' is declared as \[\]"),
    ({"features": {"a": [1]}}, r"feature 'a' is declared as \[1\]"),
    ({"features": {"a": [False, True]}}, "feature 'a' is declared as"),
    ({"features": {"a": [1, 0]}}, r"bounds of 'a' are \[1, 0\]; they must be finite and increasing"),
    ({"features": {"a": [1, 1]}}, "they must be finite and increasing"),
    ({"features": {"a": [-1e308, 1e308]}}, "they must be finite and increasing"),
    ({"features": '{"a": [0, 1e999]}'}, "they must be finite and increasing"),
    ({"features": '{"a": [0, 1' + "0" * 400 + "]}"}, "they must be finite and increasing"),
    ({"features": {"c": ["u", "u"]}}, "categories of 'c' list a value twice"),
    ({"features": {"x": {"length": 3}}}, 'needs exactly "length" and "norm"'),
    ({"features": {"x": {"length": 0, "norm": 1}}}, "length of 'x' = 0 must be a whole number between 1"),
    ({"features": {"x": {"length": 2**24, "norm": 1}}}, "length of 'x' = 16777216"),
    ({"features": {"x": {"length": True, "norm": 1}}}, "length of 'x' = True"),
    ({"features": {"x": {"length": 3, "norm": 0}}}, "norm of 'x' is 0; it must be between"),
    ({"features": {"x": {"length": 3, "norm": "1"}}}, "norm of 'x' is 1; it must be between"),
    ({"features": "[1, 2]"}, "features"),
    ({"features": "5"}, "features"),
    ({"features": '"abc"'}, "features"),
    ({"features": {"nope": [0, 1]}}, "column 'nope' does not exist in .*; its columns are a, b, c, m, n, x, y, y2"),
    ({"label": "nope"}, "column 'nope' does not exist"),
    ({"features": {"x": [0, 1]}}, r"column 'x' of .* is double precision\[\]; it must be one of"),
    ({"features": {"a": {"length": 3, "norm": 1}}}, "column 'a' of .* is double precision; it must"),
    ({"features": {"a": ["1"]}}, "column 'a' of .* is double precision; it must be one of"),
    ({"features": {"c": [0, 1]}}, "column 'c' of .* is text; it must be one of"),
    ({"label": "x", "features": {"a": [0, 1]}}, "column 'x' of .* must be one of"),
    ({"positive": "yes"}, "label value 'yes' is not of type integer, that of column 'y'"),
    ({"negative": "no"}, "label value 'no' is not of type integer, that of column 'y'"),
    ({"label": "a"}, "label 'a' is double precision; declare its negative value too"),
    ({"name": ""}, "dataset name '' has 0 characters; choose one with 1 to 63"),
    ({"name": "n" * 64}, "has 64 characters; choose one with 1 to 63"),
    ({"epsilon": 0}, "epsilon = 0.0 must be positive"),
    ({"epsilon": -1}, "epsilon = -1.0 must be positive"),
    ({"epsilon": float("nan")}, "epsilon = nan must be positive"),
    ({"epsilon": float("inf")}, "epsilon = inf must be positive"),
    ({"delta": 1}, "delta = 1.0 must be at least 0 and below 1"),
    ({"delta": -1e-9}, "delta = -1e-09 must be at least 0 and below 1"),
    ({"delta": 0, "mode": "renyi"}, "a budget of mode 'renyi' needs delta > 0"),
    ({"epsilon": 1e-9, "delta": 1e-15, "mode": "renyi"}, "too small for mode 'renyi'"),
    ({"mode": "laplace"}, "mode 'laplace' is unknown; choose one of renyi, basic"),
    ({"epsilon": 1e300}, "epsilon"),
    ({"features": {"y2": ["one"]}}, "category 'one' .* integer"),
    ({"features": {"b": ["yes!"]}}, "category 'yes!' .* boolean"),
    ({"features": {"m": ["nope"]}}, "category 'nope' .* enum"),
    ({"positive": None}, "positive is null, and so are classes and label_bounds; give the one"),
    ({"classes": ["1", "2"]}, "positive and classes are set; a label has one kind"),
    (
        {"classes": ["1", "2"], "label_bounds": [0, 1]},
        "positive and classes and label_bounds are set; a label has one kind",
    ),
    (
        {"positive": None, "classes": ["1", "2"], "negative": "0"},
        "negative = '0' is set with classes; it belongs to positive",
    ),
    ({"positive": None, "classes": ["1"]}, "label 'y' has 1 classes; it must have 2 to 1000"),
    ({"positive": None, "classes": []}, "label 'y' has 0 classes; it must have 2 to 1000"),
    (
        {"positive": None, "classes": [str(number) for number in range(1001)]},
        "label 'y' has 1001 classes; it must have 2 to 1000",
    ),
    ({"positive": None, "classes": ["1", "2", "1"]}, "classes of 'y' list a value twice"),
    ({"positive": None, "classes": ["1", None]}, "classes of 'y' are .* give a list of strings"),
    ({"positive": None, "classes": [["1"], ["2"]]}, "classes of 'y' are .* give a list of strings"),
    ({"positive": None, "classes": ["1", "x"]}, "class 'x' of 'y' is not a value of type integer"),
    (
        {"positive": None, "classes": ["1", "+2"]},
        r"class '\+2' of 'y' is not a value of type integer as PostgreSQL writes it; write it as '2'",
    ),
    (
        {"label": "n", "features": {"a": [0, 1]}, "positive": None, "classes": ["1", "1.0"]},
        "two classes of 'n' are the same numeric; list each once",
    ),
    (
        {"label": "m", "features": {"a": [0, 1]}, "positive": None, "classes": ["sad", "nope"]},
        "class 'nope' of 'm' is not a value of type enum",
    ),
    (
        {"label": "x", "features": {"a": [0, 1]}, "positive": None, "classes": ["1", "2"]},
        "column 'x' of .* must be one of",
    ),
    (
        {"label": "c", "features": {"a": [0, 1]}, "positive": None, "label_bounds": [0, 1]},
        "column 'c' of .* is text; it must be one of smallint",
    ),
    (
        {"label": "m", "features": {"a": [0, 1]}, "positive": None, "label_bounds": [0, 1]},
        "column 'm' of .* is enum .*; it must be one of",
    ),
    ({"positive": None, "label_bounds": [1]}, r"label_bounds of 'y' are \[1.0\]; give \[lower, upper\]"),
    ({"positive": None, "label_bounds": []}, r"label_bounds of 'y' are \[\]; give"),
    ({"positive": None, "label_bounds": [0.0, None]}, "label_bounds of 'y' are .* give"),
    (
        {"positive": None, "label_bounds": [1, 0]},
        r"label_bounds of 'y' are \[1.0, 0.0\]; they must be finite and increasing, within ±1e.100",
    ),
    ({"positive": None, "label_bounds": [1, 1]}, "they must be finite and increasing"),
    ({"positive": None, "label_bounds": [0.0, float("inf")]}, "they must be finite"),
    ({"positive": None, "label_bounds": [float("nan"), 1.0]}, "they must be finite"),
    ({"positive": None, "label_bounds": [0.0, 1e101]}, "they must be finite"),
    ({"positive": None, "label_bounds": [0.0, 1e-101]}, "at least 1e-100 apart"),
]
NULLS = ["name", "label", "positive", "features", "epsilon", "delta", "intercept", "mode"]
ERRORS += [({argument: None}, f"{argument} (is null|is missing|is required|= None)") for argument in NULLS]


@pytest.mark.parametrize(("given", "message"), ERRORS)
def test_an_unsound_declaration_is_refused_and_leaves_nothing(connection, schema, register, given, message):
    columns = "null::float8[] x, 1 y, 1.0::float8 a, 'u'::text c, 1 y2, true b, 'sad'::mood m, 1.0::numeric n"
    connection.execute(f"create type mood as enum ('sad'); create table t as select {columns}")
    with pytest.raises(psycopg.Error) as error:
        register("t", **given)
    assert nothing_left(connection, schema)
    primary = error.value.diag.message_primary
    assert error.match(message)
    assert primary.startswith("dbdp: "), primary  # ours, with the bare text, and no Python exception


def test_an_error_that_is_caught_leaves_nothing(connection, schema, table):
    connection.execute("""
do $$ begin
  perform dbdp.register_dataset('', 't', 'y', '1', '{"x": {"length": 3, "norm": 1}}', 1, 0, mode => 'basic');
exception when others then null; end $$""")
    assert nothing_left(connection, schema)


def test_a_name_and_a_table_are_registered_once(connection, schema, table, register):
    name = register(table)
    connection.execute("create table other as select * from t")
    with pytest.raises(
        psycopg.Error, match=f"dataset '{name}' is registered already, and registering it again .* dbdp.renew_budget"
    ):
        register(table)
    with pytest.raises(psycopg.Error, match=f"dataset '{name}' is registered already"):
        register("other", name=name)
    with pytest.raises(psycopg.Error, match=f"is registered already as dataset '{name}'; a table has one budget"):
        register(table, name=name + "2")
    connection.execute("select dbdp.drop_dataset(%s)", (name,))
    register(table)


def test_a_dropped_dataset_is_unknown(connection, dataset):
    connection.execute("select dbdp.drop_dataset(%s)", (dataset,))
    for sql in (TRAIN, "select dbdp.drop_dataset(%s)", "select dbdp.dp_explain(%s, epsilon => 1)"):
        with pytest.raises(psycopg.Error, match=f"dataset '{dataset}' is not registered"):
            connection.execute(sql, (dataset,))
    left = "select count(*) from dbdp.datasets_details where name = %s"
    assert connection.execute(left, (dataset,)).fetchone() == (0,)


CHANGES = {
    "dropped table": ("drop table t", "table .*t of dataset .* was dropped; call dbdp.drop_dataset"),
    "dropped column": ("alter table t drop x", "column 'x' of .*t was double precision.* is now gone; rename it back"),
    "dropped label": ("alter table t drop y", "column 'y' of .*t was integer .* is now gone"),
    "renamed column": ("alter table t rename x to z", "column 'x' of .* is now gone"),
    "altered column": (
        "alter table t alter y type bigint",
        "'y' of .* was integer .* is now bigint; call dbdp.redeclare",
    ),
    "altered array": ("alter table t alter x type float4[]", r"column 'x' of .* is now real\[\]"),
    "more rows": ("insert into t select * from t limit 1", "has 61 rows, but dataset .* was registered with 60"),
    "fewer rows": ("delete from t where ctid = (select min(ctid) from t)", "has 59 rows, but dataset"),
    "no rows": ("truncate t", "has 0 rows, but dataset"),
    "row-level security": (
        "alter table t enable row level security; create policy p on t using (true)",
        "row-level security",
    ),
    "inheritance": (
        "create table child () inherits (t); "
        "with g as (delete from t where y = 1 returning *) insert into child select * from g",
        "inherit",
    ),
}


def test_altered_column_is_redeclared_and_budget_stays(connection, dataset, spent, schema):
    """Neither needs another registration, whose budget would begin anew."""
    connection.execute("select dbdp.grant_training(%s, 'dbdp_analyst', 0.1)", (dataset,))
    state = "select d.id, a.epsilon from dbdp.dataset d join dbdp.allowance a on a.dataset_id = d.id where name = %s"
    before = connection.execute(state, (dataset,)).fetchall(), spent(dataset)
    connection.execute("alter table t alter y type bigint")
    with pytest.raises(psycopg.Error, match="is now bigint"):
        connection.execute(TRAIN, (dataset,))
    connection.execute("select dbdp.redeclare(%s, 'more digits')", (dataset,))
    assert (connection.execute(state, (dataset,)).fetchall(), spent(dataset)) == before
    assert connection.execute(TRAIN, (dataset,)).fetchone()
    former = "select column_types ->> 'y', reason from dbdp.former_declaration where dataset_id = %s"
    assert connection.execute(former, (before[0][0][0],)).fetchall() == [("integer", "more digits")]
    with pytest.raises(psycopg.Error, match="has this declaration already"):
        connection.execute("select dbdp.redeclare(%s, 'again')", (dataset,))


@pytest.mark.parametrize("interface", ["server", "client"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changed_is_refused_before_any_charge(connection, database, dataset, spent, change, interface):
    statement, message = CHANGES[change]
    connection.execute(statement)
    with pytest.raises((psycopg.Error, ValueError), match=message):
        if interface == "server":
            connection.execute(TRAIN, (dataset,))
        else:
            LogisticRegression(epsilon=1.0, algorithm="bolt_on", batch_size=5, progress=False).fit(database, dataset)
    assert spent(dataset) == (0, 0)
    connection.execute("select dbdp.drop_dataset(%s)", (dataset,))  # always possible


def test_a_renamed_or_moved_table_is_the_same_dataset(connection, schema, dataset):
    connection.execute(
        f"alter table t rename to u; create schema {schema}_2; grant usage on schema {schema}_2 to dbdp_owner"
    )
    connection.execute(f"alter table u set schema {schema}_2")
    connection.execute(TRAIN, (dataset,))
    connection.execute("select dbdp.drop_dataset(%s)", (dataset,))
    connection.execute(f"drop schema {schema}_2 cascade")


@pytest.mark.parametrize("interface", ["server", "client"])
def test_a_dataset_of_this_transaction_cannot_be_trained_on(server_url, schema, connection, table, interface):
    with psycopg.connect(server_url) as mine:
        mine.execute(f"set search_path = {schema}")
        mine.execute("savepoint before")
        declared = json.dumps({"x": {"length": 3, "norm": 1}})
        sql = "select dbdp.register_dataset('fresh', 't', 'y', '1', %s, 9, 0, mode => 'basic')"
        mine.execute(sql, (declared,))
        with pytest.raises((psycopg.Error, ValueError), match="registered in this transaction, which could still undo"):
            if interface == "server":
                mine.execute(TRAIN, ("fresh",))
            else:
                LogisticRegression(epsilon=1.0, algorithm="bolt_on", batch_size=5, progress=False).fit(
                    connect(mine), "fresh"
                )
        mine.rollback()
    assert nothing_left(connection, schema)


def test_the_rows_are_never_read_for_the_declaration(connection, schema, register):
    """The catalogue of a table is the same, whatever its rows hold."""
    for name, value in (("low", "0.1"), ("high", "'Infinity'")):
        connection.execute(
            f"create table {name} as select {value}::float8 a, 'k'::text c, 1 y from generate_series(1, 9)"
        )
        register(name, features={"a": [0, 1], "c": ["u", "v"]})
    sql = "select rows, declaration::text, column_types::text, charge_limit from dbdp.dataset where source_name like %s"
    low, high = connection.execute(sql, (f"{schema}.%",)).fetchall()
    assert low == high
