"""Who may do what: owners see their rows, analysts see releases, strangers see nothing."""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import psycopg
import pytest
from acting import acting
from pairs import each_value_quick
from short import FEW

from dbdp.algorithms import NOISY_WHILE_TRAINING, Request
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.estimators import LogisticRegression

CHOSEN = "objective_perturbation"  # what `auto` chooses for a pure ε
TRAIN = "select model from dbdp.dp_logreg(%s, epsilon => 1, batch_size => 20)"
TRAIN_BY = "select model from dbdp.dp_train(%s, 1, 1e-6, %s)"
SUMMING = ("dp_sgd", "dp_agd", "majority", "preconditioned_gd")  # together they have every aggregate
ROLES = {"analyst": "dbdp_analyst", "owner": "dbdp_data_owner", "rival": "dbdp_data_owner", "stranger": None}
PURE = '{"event": {"event": "EpsilonDeltaDpEvent", "epsilon": 1, "delta": 0}, "epsilon": 1, "delta": 0}'
PLAN = f'{{"algorithm": "bolt_on", "guarantee": {PURE}}}'
DECLARATION = '{"label": "y", "positive": "1", "features": {"x": {"length": 3, "norm": 1}}}'
NETWORK = (
    '{{"inputs": 4, "outputs": 1, "intercept": true, "scale": 1, "channels": [], "hidden": []}}'  # to be formatted
)
DECLARED = '{"x": {"length": 3, "norm": 1}}'
REGISTER = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 100, 1e-3, mode => 'basic')"


@pytest.fixture
def roles(connection: psycopg.Connection, schema: str) -> Iterator[dict[str, str]]:
    """One role of each kind, by its kind; they are gone at the end."""
    names = {kind: f"{kind}_{schema}" for kind in ROLES}
    for kind, member in ROLES.items():
        connection.execute(f"create role {names[kind]}" + (f" in role {member}" if member else ""))
    connection.execute(f"grant create on schema {schema} to {names['owner']}, {names['rival']}")
    yield names
    connection.execute("reset session authorization")
    for (name,) in connection.execute(
        "select name from dbdp.datasets_details where source like %s", (f"{schema}.%",)
    ).fetchall():
        connection.execute("select dbdp.drop_dataset(%s)", (name,))
    for name in names.values():
        connection.execute(f"drop owned by {name} cascade; drop role {name}")


@pytest.fixture
def dataset(connection: psycopg.Connection, schema: str, roles: dict[str, str]) -> str:
    """A table of the owner, registered by the owner, who lets the analyst train."""
    with acting(connection, roles["owner"]):
        connection.execute(
            "create table t as select array[.1, .2, i / 99.0]::float8[] x, i % 2 y from generate_series(1, 60) i"
        )
        connection.execute(REGISTER, (f"{schema}_t", f"{schema}.t", DECLARED))
        connection.execute("select dbdp.grant_training(%s, %s)", (f"{schema}_t", roles["analyst"]))
    return f"{schema}_t"


def test_an_analyst_trains_explains_predicts_and_lists(connection, dataset, roles):
    with acting(connection, roles["analyst"]):
        model = connection.execute(TRAIN, (dataset,)).fetchone()[0]
        assert connection.execute("select dbdp.dp_explain(%s, 1)->>'algorithm'", (dataset,)).fetchone() == (CHOSEN,)
        left = connection.execute("select charged, epsilon_left from dbdp.budget_details(%s)", (dataset,)).fetchone()
        assert left == (1, 99)
        sql = (
            "select dbdp.predict(%s, '{.1, .2, .3}'::float8[]) is null, "
            "dbdp.predict_probability(%s, '{1, 2, 3}'::float4[]) > 0"
        )
        assert connection.execute(sql, (model, model)).fetchone() == (False, True)
        connection.execute("create temporary table rows_of_mine (x float8[])")
        with pytest.raises(psycopg.Error, match="trained on the array in column 'x', not on a row"):
            connection.execute("select dbdp.predict(%s, r) from (select 1 as z) as r", (model,))
        assert connection.execute(
            "select count(*) from dbdp.datasets_details where name = %s", (dataset,)
        ).fetchone() == (1,)
        released = connection.execute(
            "select receipt->>'released_by' from dbdp.models_details where id = %s", (model,)
        ).fetchone()
    assert released == (roles["analyst"],)


def test_members_who_only_administer_a_role_lack_its_rights(connection):
    """Since PostgreSQL 16. The control: members who may take the role, or inherit its rights, have them."""
    granted = {"member": "", "admin": "with admin option"}
    if connection.info.server_version >= 160000:
        granted |= {"admin": "with admin true, inherit false, set false", "heir": "with inherit true, set false"}
        granted |= {"taker": "with inherit false, set true"}
    with connection.transaction(force_rollback=True):
        connection.execute("create role crowd")
        for role, option in granted.items():
            connection.execute(f"create role {role} in role dbdp_predictor; grant crowd to {role} {option}")
            connection.execute(f"set session authorization {role}")
            sql = "select dbdp_internal.identity_of('crowd') = any (dbdp_internal.own_roles())"
            is_member = role != "admin" or connection.info.server_version < 160000
            assert connection.execute(sql).fetchone() == (is_member,), role
            connection.execute("reset session authorization")


VIEWS = """
select c.oid::regclass::text, coalesce(c.reloptions, '{}') && '{security_barrier=true,security_invoker=true}'
from pg_class as c
where c.relnamespace in ('dbdp'::regnamespace, 'dbdp_internal'::regnamespace)
and c.relkind = 'v'"""


def test_every_view_is_a_barrier_or_its_readers(connection):
    """Else a cheap function of the reader's would see rows before the view's condition does."""
    views = dict(connection.execute(VIEWS).fetchall())
    assert len(views) > 15
    assert [name for name, is_safe in views.items() if not is_safe] == []


INTERNAL = ("own_datasets", "open_datasets", "granted_models", "granted_names", "watched_datasets")
LEAKING = ("own_datasets", "granted_names")
LEAK = """
create function pg_temp.leak(value text) returns boolean language plpgsql immutable cost 0.0000001
as $$ begin perform nextval('pg_temp.seen'); return true; end $$"""


@pytest.mark.parametrize("view", INTERNAL)
def test_no_view_shows_rows_to_a_function_of_its_reader(connection, dataset, roles, view):
    """The control: without the barrier the function sees rows of others, in at least two of them."""
    if view == "watched_datasets":
        connection.execute(f"grant select on dbdp.watched_datasets to {roles['stranger']}")
    name = f"{dataset}_m"
    (model,) = connection.execute(TRAIN.replace(")", ", name => %s)"), (dataset, name)).fetchone()
    connection.execute("select dbdp.grant_prediction(%s, %s)", (model, roles["analyst"]))
    connection.execute("select dbdp.grant_prediction(%s, %s)", (name, roles["analyst"]))
    connection.execute(f"grant dbdp_predictor to {roles['stranger']}")
    seen, column = [], "name" if view == "granted_names" else "id"
    for barrier in (True, False):
        with connection.transaction(force_rollback=True):
            connection.execute(f"alter view dbdp.{view} set (security_barrier = {barrier})")
            with acting(connection, roles["stranger"]):
                connection.execute("create temporary sequence seen")
                connection.execute(LEAK)
                for scan in ("indexscan", "indexonlyscan", "bitmapscan"):
                    connection.execute(f"set local enable_{scan} = off")
                for cost in ("0.0025", "1.7e308"):
                    connection.execute(f"set local cpu_operator_cost = {cost}")
                    look = f"select * from dbdp.{view} where pg_temp.leak({column}::text)"
                    assert connection.execute(look).fetchall() == []
                seen.append(connection.execute("select is_called from pg_temp.seen").fetchone()[0])
    assert seen == [False, view in LEAKING]


OF_NOBODY = {
    "a greater allowance": "update dbdp.allowance set charge_limit = null",
    "an allowance of his own": "insert into dbdp.allowance (dataset_id, role) values (1, session_user)",
    "any model": "insert into dbdp.prediction_grant (model_id, role) values (1, session_user)",
    "writing history": "insert into dbdp.ledger (dataset_id) values (1)",
    "the odometers": "select last_value from dbdp.charge_{id}",
    "winding an odometer back": "select setval('dbdp.charge_{id}', 0)",
    "an exact tally": "select dbdp_internal.tally(null::bytea, null, null)",
    "the tally of a block": "select dbdp_internal.tally_transition(null, null, null, null)",
    "the end of a tally": "select dbdp_internal.tally_terminate(null)",
    "changing a budget": "update dbdp.dataset set epsilon = 99",
    "changing a limit": "update dbdp.dataset set charge_limit = 9000000000",
    "forging a dataset": "insert into dbdp.dataset (name) values ('z')",
    "forging a model": "insert into dbdp.model (dataset_id) values (1)",
    "deleting a model": "delete from dbdp.model",
    "deleting history": "delete from dbdp.ledger",
    "forging an outcome": "insert into dbdp.outcome (ledger_id, outcome) values (1, 'shown')",
    "changing an outcome": "update dbdp.outcome set outcome = 'failed'",
    "deleting an outcome": "delete from dbdp.outcome",
    "becoming dbdp_owner": "set role dbdp_owner",
    "making objects in dbdp": "create table dbdp.mine (a int)",
    "PL/Python": "do language plpython3u $$ pass $$",
}
OF_THE_OWNER = {
    "the rows": "select * from t",
    "the number of rows of the table": "select count(*) from t",
    "the right to train": "select dbdp.grant_training('{name}', session_user)",
    "taking a right away": "select dbdp.revoke_training('{name}', session_user)",
    "packing": "create temporary table b (block_no int8, block bytea); "
    "select dbdp_internal.shuffle('{name}', 'pg_temp.b')",
    "packing a share": "create temporary table c (block_no int8, block bytea); "
    f"""select dbdp_internal.shuffle('{{name}}', 'pg_temp.c', '{{{{"key": "{"00" * 32}", "last": 5}}}}')""",
    "an epoch": "select dbdp_internal.sgd_epoch(null::bytea, null)",
    "a transition": "select dbdp_internal.sgd_transition(null, null, null)",
    "a termination": "select dbdp_internal.sgd_terminate(null)",
    "noisy updates": "select dbdp_internal.noisy_steps(null::bytea, null)",
    "a noisy transition": "select dbdp_internal.noisy_transition(null, null, null)",
    "a noisy termination": "select dbdp_internal.noisy_terminate(null)",
    "a sum of gradients": "select dbdp_internal.gradient_sum(null::bytea, null, null, 1)",
    "the gradients of a block": "select dbdp_internal.gradient_transition(null, null, null, null, 1)",
    "a sum of losses": "select dbdp_internal.loss_sum(null::bytea, null, null, 1)",
    "the losses of a block": "select dbdp_internal.loss_transition(null, null, null, null, 1)",
    "a second moment": "select dbdp_internal.second_moment(null::bytea, 1)",
    "the second moment of a block": "select dbdp_internal.second_moment_transition(null, null, 1)",
    "lengths in other coordinates": "select dbdp_internal.lengths(null, null)",
    "a sum in other coordinates": "select dbdp_internal.measured_gradient_sum(null::bytea, null, null, null, 1)",
    "counts of labels": "select dbdp_internal.label_counts(null::bytea, 1, 1)",
    "the labels of a block": "select dbdp_internal.label_transition(null, null, 1, 1)",
    "counts of errors": "select dbdp_internal.count_errors(null::bytea, null, 1)",
    "the errors of a block": "select dbdp_internal.count_errors_transition(0, null, null, 1)",
    "the sizes of groups": "select dbdp_internal.group_sizes('{name}', 'y', '{{1}}')",
    "dealing groups": "select dbdp_internal.deal_groups('{name}', 'pg_temp.b', 'y', '{{1}}', '{{30}}')",
    "a charge of his own": "select dbdp_internal.charge('{name}', '{{}}')",
    "a release of his own": "select dbdp_internal.store_release('{name}', '{{1, 2, 3}}', '{{0}}', '{{}}')",
    "a network of his own": f"select dbdp_internal.store_network('{{name}}', '{NETWORK}', "
    "'{{1, 1, 1, 1}}', '{{}}')",
    "a registration": "select dbdp.register_dataset('z', 't', 'y', '1', '{{}}', 1, 0)",
    "closing": "select dbdp.drop_dataset('{name}')",
    "bounds of a column": "select dbdp.dp_bounds('{name}', 'y', 1)",
    "former declarations": "select * from dbdp.former_declaration",
    "an outcome of his own": "select dbdp_internal.record_outcome(1, 'failed')",
    "a check of the ledger": "select dbdp.check_ledger()",
    "a renewal": "select dbdp.renew_budget('{name}', ' ')",
    "a redeclaration": "select dbdp.redeclare('{name}', ' ')",
}
FORBIDDEN = OF_NOBODY | OF_THE_OWNER


def forbidden(connection: psycopg.Connection, dataset: str, action: str) -> str:
    number = connection.execute("select max(id) from dbdp.dataset where name = %s", (dataset,)).fetchone()[0]
    return FORBIDDEN[action].format(id=number, name=dataset)


def permitted(connection: psycopg.Connection, role: str, statements: dict[str, str]) -> list[str]:
    """The actions that the role is not refused for want of a privilege."""
    done = []
    for action, statement in statements.items():
        with acting(connection, role):
            try:
                connection.execute(statement)
            except psycopg.errors.InsufficientPrivilege:
                continue
            except psycopg.Error as error:
                done.append(f"{action}: {error}")
                continue
        done.append(action)
    return done


@pytest.mark.parametrize("kind", ["analyst", "stranger"])
@pytest.mark.attack("internal-functions")
def test_what_is_not_released_is_closed(connection, dataset, roles, kind):
    statements = {action: forbidden(connection, dataset, action) for action in FORBIDDEN}
    assert permitted(connection, roles[kind], statements) == []


@pytest.mark.attack("odometer")
def test_not_even_an_owner_changes_the_ledger(connection, dataset, roles):
    statements = {action: forbidden(connection, dataset, action) for action in OF_NOBODY}
    assert permitted(connection, roles["owner"], statements) == []
    assert permitted(connection, roles["owner"], {"the rows": "select * from t"}) == ["the rows"]


INTERFACES = [
    "dbdp.dp_logreg('{}', 1)",
    "dbdp.dp_train('{}', 1, 1e-6, 'dp_sgd')",
    "dbdp.dp_train_groups('{}', 'y', '{{1}}', 1)",
    "dbdp.dp_explain_groups('{}', 'y', '{{1}}', 1)",
    "dbdp.dp_score(1, '{}', 'accuracy', 1)",
    "dbdp.dp_explain_score('{}', 'accuracy', 1)",
    "dbdp.dp_class_balance('{}', 1)",
    "dbdp.dp_bounds('{}', 'y', 1)",
    "dbdp.dp_summarize('{}', 1, 1e-6)",
    "dbdp.summary_linreg(1, 'y')",
    "dbdp.summary_pca(1)",
    "dbdp.summary_correlations(1)",
    "dbdp.dp_explain('{}', 1)",
    "dbdp.budget_details('{}')",
    "dbdp.predict(1, '{{1,2,3}}'::float8[])",
    "dbdp.predict_probability(1, '{{1,2,3}}'::float4[])",
    "dbdp.predict_class(1, '{{1,2,3}}'::float8[])",
    "dbdp.predict_probabilities(1, '{{1,2,3}}'::float8[])",
    "dbdp.predict_value(1, '{{1,2,3}}'::float8[])",
    "dbdp_internal.model_description(1)",
    "count(*) from dbdp.datasets_details",
    "count(*) from dbdp.models_details",
    "count(*) from dbdp.summaries_details",
    "count(*) from dbdp.dataset",
    "count(*) from dbdp.ledger",
    "count(*) from dbdp.allowances_details",
    "count(*) from dbdp.prediction_grant",
    "dbdp_internal.own_roles()",
    "dbdp.grant_prediction(1, session_user)",
]


def test_a_stranger_has_no_access(connection, dataset, roles):
    statements = {interface: f"select {interface.format(dataset)}" for interface in INTERFACES}
    assert permitted(connection, roles["stranger"], statements) == []


@pytest.mark.parametrize("kind", ["analyst", "owner"])
def test_python_trains_where_the_role_may(connection, dataset, roles, kind):
    """The owner in the client, with progress; the analyst in the server."""
    stages: list[str] = []
    with acting(connection, roles[kind]):
        model = connect(connection).train(
            dataset, Request(epsilon=1.0, batch_size=20), lambda stage, *_: stages.append(stage)
        )
        fitted = LogisticRegression(epsilon=1.0, batch_size=20, progress=False).fit(connect(connection), dataset)
    assert stages
    assert ("server" in stages) == (kind == "analyst")
    assert model.receipt["released_by"] == roles[kind]
    assert fitted.coef_.shape == (1, 3)
    stored = connection.execute(
        "select coefficients, intercept from dbdp.models_details where id = %s", (fitted.model_id_,)
    ).fetchone()
    assert np.array_equal(stored[0], fitted.coef_[0])
    assert stored[1] == fitted.intercept_[0]


@pytest.mark.parametrize(("algorithm", "kind"), each_value_quick(list(NOISY_WHILE_TRAINING), ["analyst", "owner"]))
def test_noise_is_added_while_training_where_the_role_may(connection, dataset, roles, algorithm, kind):
    """The owner in the client, with progress; the analyst in the server, with the rights of dbdp_owner alone."""
    stages: list[str] = []
    request = Request(epsilon=1.0, delta=1e-6, algorithm=algorithm, **FEW[algorithm])
    with acting(connection, roles[kind]):
        model = connect(connection).train(dataset, request, lambda stage, *_: stages.append(stage))
    assert stages
    assert ("server" in stages) == (kind == "analyst")
    assert (model.receipt["algorithm"], model.receipt["released_by"]) == (algorithm, roles[kind])
    assert len(model.coefficients) == 3


def test_reader_who_owns_nothing_may_train_in_the_client(connection, dataset, roles):
    """A role that may read but owns nothing may train in the client."""
    connection.execute(f"grant select on t to {roles['rival']}")
    connection.execute("select dbdp.grant_training(%s, %s)", (dataset, roles["rival"]))
    stages: list[str] = []
    with acting(connection, roles["rival"]):
        connect(connection).train(dataset, Request(epsilon=1.0, batch_size=20), lambda stage, *_: stages.append(stage))
    assert stages


def test_an_owner_closes_its_own_datasets_only(connection, dataset, roles):
    drop = "select dbdp.drop_dataset(%s)"
    with acting(connection, roles["rival"]), pytest.raises(psycopg.Error, match=f"'{dataset}' is not registered"):
        connection.execute(drop, (dataset,))
    connection.execute("select dbdp.grant_training(%s, %s)", (dataset, roles["rival"]))
    refused = f"dataset '{dataset}' belongs to {roles['owner']}; only that role may drop it"
    with acting(connection, roles["rival"]), pytest.raises(psycopg.Error, match=refused):
        connection.execute(drop, (dataset,))
    with acting(connection, roles["owner"]):
        connection.execute("select dbdp.drop_dataset(%s)", (dataset,))


@pytest.mark.parametrize(
    "statement",
    [
        "select dbdp_internal.charge('{name}', '{plan}')",
        "select dbdp_internal.store_release('{name}', '{{1, 2, 3}}', '{{0}}', '{{}}')",
        f"select dbdp_internal.store_network('{{name}}', '{NETWORK}', '{{{{1, 1, 1, 1}}}}', '{{{{}}}}')",
        "create temporary table b (block_no int8, block bytea); select dbdp_internal.shuffle('{name}', 'pg_temp.b')",
        "select dbdp_internal.check_rows('{name}')",
    ],
)
@pytest.mark.attack("internal-functions")
def test_another_owner_has_no_rights_on_this_dataset(connection, schema, dataset, roles, statement):
    refused = pytest.raises(psycopg.Error, match=r"is not registered|permission denied|only its owner")
    with acting(connection, roles["rival"]), refused:
        connection.execute(statement.format(name=dataset, schema=schema, plan=PLAN, declaration=DECLARATION))


def test_another_owner_cannot_register_the_table(connection, schema, dataset, roles):
    connection.execute("select dbdp.drop_dataset(%s)", (dataset,))
    connection.execute(f"grant select on t to {roles['rival']} with grant option")
    refused = pytest.raises(psycopg.Error, match=f"belongs to {roles['owner']}; only its owner may register it")
    with acting(connection, roles["rival"]), refused:
        connection.execute(REGISTER, ("mine", f"{schema}.t", DECLARED))


def test_schema_closed_to_dbdp_owner_names_the_remedy(connection, schema, roles):
    """A schema that dbdp_owner may not use is named with the remedy."""
    closed = f"closed_{schema}"
    connection.execute(f"create schema {closed} authorization {roles['owner']}")
    with acting(connection, roles["owner"]):
        connection.execute(
            f"create table {closed}.t as select array[.1, .2, .3]::float8[] x, 1 y from generate_series(1, 60)"
        )
        with pytest.raises(
            psycopg.Error, match=f"dbdp_owner may not use schema {closed}; (grant usage .* to dbdp_owner)"
        ) as error:
            connection.execute(REGISTER, (closed, f"{closed}.t", DECLARED))
        remedy = error.value.diag.message_primary.partition("; ")[2]
        connection.execute(remedy)
        connection.execute(REGISTER, (closed, f"{closed}.t", DECLARED))
        connection.execute(TRAIN, (closed,))
        connection.execute("select dbdp.drop_dataset(%s)", (closed,))


def spy(connection: psycopg.Connection, schema: str, result: str) -> None:
    """A function of the owner that notes as whom it runs."""
    connection.execute(f"create table {schema}.seen (who name); grant insert on {schema}.seen to public")
    returned = {"boolean": "true", "text": "'a'"}.get(result, f"'a'::{result}")
    body = f"begin insert into {schema}.seen values (current_user); return {returned}; end"
    argument = {"boolean": ""}.get(result, f"{schema}.mood" if result == "text" else "text")
    connection.execute(
        f"create function {schema}.spy({argument}) returns {result} language plpgsql volatile as $$ {body} $$"
    )


def ran_as(connection: psycopg.Connection, schema: str) -> set[str]:
    return {who for (who,) in connection.execute(f"select distinct who from {schema}.seen").fetchall()}


def tolerated(connection: psycopg.Connection, sql: str, parameters: tuple) -> None:
    """Run what may be refused: the claim is about whose rights it had."""
    with suppress(psycopg.Error):
        connection.execute(sql, parameters)


@pytest.mark.parametrize("direction", ["from the enum", "to the enum"])
@pytest.mark.attack("column-types")
def test_a_cast_of_an_owner_never_runs_as_dbdp_owner(connection, schema, roles, direction):
    """dbdp_owner may wind odometers back and read every registered table."""
    name = f"{schema}_cast"
    with acting(connection, roles["owner"]):
        connection.execute(f"create type {schema}.mood as enum ('a', 'b')")
        if direction == "from the enum":
            spy(connection, schema, "text")
            connection.execute(f"create cast ({schema}.mood as text) with function {schema}.spy({schema}.mood)")
        else:
            spy(connection, schema, f"{schema}.mood")
            connection.execute(f"create cast (text as {schema}.mood) with function {schema}.spy(text)")
        connection.execute(
            f"create table {schema}.e as select 'a'::{schema}.mood as m, "
            f"(case i % 2 when 0 then 'a' else 'b' end)::{schema}.mood as y from generate_series(1, 60) i"
        )
        connection.execute(f"truncate {schema}.seen")
        sql = "select dbdp.register_dataset(%s, %s::regclass, 'y', 'a', %s, 100, 0, mode => 'basic')"
        tolerated(connection, sql, (name, f"{schema}.e", '{"m": ["a", "b"]}'))
    with acting(connection, roles["analyst"]):
        tolerated(connection, TRAIN, (name,))
    assert "dbdp_owner" not in ran_as(connection, schema)


@pytest.mark.attack("defaults")
def test_a_policy_of_an_owner_never_runs_as_dbdp_owner(connection, schema, dataset, roles):
    with acting(connection, roles["owner"]):
        spy(connection, schema, "boolean")
        connection.execute(
            f"alter table {schema}.t enable row level security; create policy p on {schema}.t using ({schema}.spy())"
        )
    with acting(connection, roles["analyst"]):
        tolerated(connection, TRAIN, (dataset,))
    assert "dbdp_owner" not in ran_as(connection, schema)


@pytest.mark.attack("defaults")
def test_rule_of_a_view_never_runs_as_dbdp_owner(connection, schema, roles):
    """A rule that makes the table a view never runs as dbdp_owner."""
    name = f"{schema}_rule"
    with acting(connection, roles["owner"]):
        spy(connection, schema, "boolean")
        connection.execute(
            f"create table {schema}.r (x float8[], y int); insert into {schema}.r values ('{{1, 2, 3}}', 1)"
        )
        connection.execute(REGISTER, (name, f"{schema}.r", DECLARED))
        connection.execute(f"truncate {schema}.r; revoke all on {schema}.r from dbdp_owner")
        rule = (
            f'create rule "_RETURN" as on select to {schema}.r do instead '
            f"select '{{1, 2, 3}}'::float8[] as x, 1 as y where {schema}.spy()"
        )
        try:
            connection.execute(rule)
        except psycopg.Error as error:
            pytest.skip(f"this PostgreSQL makes no view of a table: {error}")
        tolerated(connection, f"grant select on {schema}.r to dbdp_owner", None)
    with acting(connection, roles["analyst"]):
        tolerated(connection, "select model from dbdp.dp_logreg(%s, 1, batch_size => 1)", (name,))
    assert "dbdp_owner" not in ran_as(connection, schema)


def test_inherited_or_temporary_object_is_not_picked_up(connection, schema, dataset, roles):
    """Objects in pg_temp with the names that the library uses change nothing."""
    with acting(connection, roles["analyst"]):
        connection.execute("""
create temporary table pg_class (oid int); create temporary table pg_attribute (attname text);
create temporary table dataset (a int); create temporary table generate_series (a int);
create type pg_temp.int8 as enum ('a'); create type pg_temp.bytea as enum ('a');
create type pg_temp.regclass as enum ('a');
create function pg_temp.count(float8) returns pg_catalog.int8 language sql as 'select 1::pg_catalog.int8';
create function pg_temp.octet_length(pg_catalog.bytea) returns int language sql as 'select 1'""")
        assert connection.execute(TRAIN, (dataset,)).fetchone()[0] > 0
        for algorithm in SUMMING:
            assert connection.execute(TRAIN_BY, (dataset, algorithm)).fetchone()[0] > 0


def test_a_search_path_of_an_analyst_changes_nothing(connection, schema, dataset, roles):
    connection.execute(f"create schema trap_{schema} authorization {roles['analyst']}")
    connection.execute(f"""
create function trap_{schema}.count(anyelement) returns bigint language sql as 'select 1 / 0::bigint';
create function trap_{schema}.exp(float8) returns float8 language sql as 'select 0.0::float8';
create table trap_{schema}.pg_class (oid int); create table trap_{schema}.model (id int)""")
    with acting(connection, roles["analyst"]):
        connection.execute(f"set search_path = trap_{schema}, pg_catalog, dbdp")
        model = connection.execute(TRAIN, (dataset,)).fetchone()[0]
        for algorithm in SUMMING:
            connection.execute(TRAIN_BY, (dataset, algorithm))
        sql = "select dbdp.predict_probability(%s, '{0.1, 0.2, 0.3}'::float8[])"
        trapped = connection.execute(sql, (model,)).fetchone()
        connection.execute("reset search_path")
        assert connection.execute(sql, (model,)).fetchone() == trapped
    connection.execute(f"drop schema trap_{schema} cascade")


@pytest.mark.parametrize("kind", ["owner", "analyst"])
def test_client_with_policies_off_trains_and_keeps_them_off(connection, dataset, roles, kind):
    """The control: a statement of the same role over the same tables is refused by PostgreSQL."""
    with acting(connection, roles[kind]):
        for command in ("select", "begin"):
            connection.execute(f"set row_security = off; {command}")
            connect(connection).train(dataset, Request(epsilon=0.5, batch_size=20))
            assert connection.execute("show row_security").fetchone() == ("off",)
            connection.execute("commit" if command == "begin" else "select")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute("select from dbdp.datasets_details")
        connection.execute("reset row_security")


def test_a_clients_search_path_changes_nothing(connection, schema, dataset, roles):
    """The owner trains from a client whose path shows another table of the same name first."""
    connection.execute(f"create schema trap_{schema}; create table trap_{schema}.t as select * from t limit 1")
    connection.execute(f"grant usage on schema trap_{schema} to public; grant select on trap_{schema}.t to public")
    with acting(connection, roles["owner"]):
        connection.execute(f"set search_path = trap_{schema}, pg_catalog")
        connect(connection).train(dataset, Request(epsilon=1.0, batch_size=20))
        connection.execute("reset search_path")
    connection.execute(f"drop schema trap_{schema} cascade")


@pytest.mark.parametrize("kind", ["analyst", "owner"])
@pytest.mark.attack("row-values")
def test_errors_after_the_charge_show_no_row(connection, schema, dataset, roles, kind):
    with acting(connection, roles["owner"]):
        connection.execute(f"insert into {schema}.t values ('{{4711, 4712, 4713}}', 815)")
    with acting(connection, roles[kind]), pytest.raises((psycopg.Error, ValueError)) as error:
        connect(connection).train(dataset, Request(epsilon=1.0, batch_size=20))
    assert not any(value in str(error.value) for value in ("4711", "4712", "815"))
    assert "61 rows" in str(error.value)


def test_members_of_no_group_are_listed_nowhere(connection):
    """The four roles cannot log in; data owners may what analysts may, and those what predictors may."""
    sql = "select rolname from pg_roles where rolname like 'dbdp%%' and rolcanlogin"
    assert connection.execute(sql).fetchall() == []
    members = """
select m.rolname, r.rolname from pg_auth_members as a
join pg_roles as m on m.oid = a.member
join pg_roles as r on r.oid = a.roleid
where m.rolname like 'dbdp%%'"""
    assert sorted(connection.execute(members).fetchall()) == [
        ("dbdp_analyst", "dbdp_predictor"),
        ("dbdp_data_owner", "dbdp_analyst"),
    ]
