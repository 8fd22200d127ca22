"""What a refusal in SQL shows, undoes and suggests."""

import psycopg
import pytest
from acting import acting

PAIRS = """
select calls.proname
from pg_proc as acts
join pg_proc as calls on 'try_' || calls.proname = acts.proname and calls.pronamespace = 'dbdp'::regnamespace
where acts.pronamespace = 'dbdp_internal'::regnamespace
order by 1
"""
NEEDS_NOTHING = {"check_ledger"}
REGISTER = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', '{\"x\": {\"length\": 3, \"norm\": 1}}', 1, 1e-3)"
TRY_TO_REGISTER = REGISTER.replace("dbdp.", "dbdp_internal.try_")
MAY_READ = "select has_table_privilege('dbdp_owner', %s::regclass, 'select')"


@pytest.fixture
def dataset(connection, schema, register):
    for name in ("t", "u"):
        connection.execute(
            f"create table {name} as select array[.1, .2, i / 99.0]::float8[] x, i % 2 y from generate_series(1, 60) i"
        )
    return register("t", epsilon=10.0, delta=1e-3)


def refusal(connection, sql, *parameters):
    """The error of a statement that is refused."""
    with pytest.raises(psycopg.Error) as error:
        connection.execute(sql, parameters)
    return error.value.diag


def test_no_function_without_arguments_is_unknown(connection):
    """PostgreSQL would say that there is no such function; the control is one that raises in PL/Python."""
    names = [name for (name,) in connection.execute(PAIRS).fetchall()]
    assert len(names) > 25
    for name in set(names) - NEEDS_NOTHING:
        shown = refusal(connection, f"select * from dbdp.{name}()")
        assert shown.sqlstate == "DP001", name
        assert shown.message_primary.startswith("dbdp: "), name
        assert " required, e.g. " in shown.message_primary, name
        assert "Python" not in shown.context, name
        assert "Traceback" not in shown.context, name
    assert "Traceback" in refusal(connection, "select dbdp_internal.check_rows(null)").context


def test_a_refusal_is_shown_to_the_role_that_was_refused(connection, dataset, make_role):
    """Code of another role, in the same session, neither sees nor takes it."""
    last = "select message from dbdp_internal.last_refusal()"
    for role in (make_role("other", "dbdp_data_owner"), "none"):
        connection.execute("select dbdp_internal.try_revoke_training(%s, 'nobody')", (dataset,))
        connection.execute(f"set role {role}")
        shown = connection.execute(last).fetchone()[0]
        assert (shown is None) == (role != "none")
        connection.execute("reset role")
    assert connection.execute(last).fetchone() == (None,)  # once


def test_what_is_missing_is_named_with_something_to_pass(connection):
    names = [name for (name,) in connection.execute(PAIRS).fetchall()]
    for name in set(names) - NEEDS_NOTHING:
        assert "=> a value" not in refusal(connection, f"select * from dbdp.{name}()").message_primary, name


def test_predictions_refuse_as_other_functions_do(connection):
    for row in ("array[1, 2]", "array[1, 2]::float4[]", "r"):
        shown = refusal(connection, f"select dbdp.predict(999999999, {row}) from (select 1 as z) as r")
        missing = "dbdp: model 999999999 does not exist; see dbdp.models"
        assert (shown.sqlstate, shown.message_primary) == ("DP001", missing)
        assert "Traceback" not in shown.context


PREDICTING = ["predict", "predict_probability", "predict_class", "predict_probabilities", "predict_value"]


@pytest.mark.parametrize("call", PREDICTING)
def test_a_prediction_says_what_it_needs(connection, call):
    for given in ("", "'illness'", "3", "3::bigint", "null", "array[1, 2]", "r", "to_jsonb(r)", "model => 'illness'"):
        shown = refusal(connection, f"select dbdp.{call}({given}) from (select 1 as z) as r")
        assert shown.sqlstate == "DP001", given
        assert f"dbdp: {call} needs a model and features; pass {call}(model, x)" in shown.message_primary, given
        assert "Traceback" not in shown.context, given


def test_errors_of_the_server_keep_their_sqlstate_and_words(connection, server_url, dataset):
    source = connection.execute("select source from dbdp.datasets where name = %s", (dataset,)).fetchone()[0]
    with psycopg.connect(server_url) as other:
        other.execute(f"lock table {source} in access exclusive mode")
        connection.execute("set lock_timeout = '10ms'")
        shown = refusal(connection, "select dbdp.dp_logreg(%s, 1)", dataset)
        connection.execute("reset lock_timeout")
    assert shown.sqlstate == "55P03"
    assert shown.message_primary == "canceling statement due to lock timeout"
    assert "Traceback" not in shown.context


def test_a_refusal_that_is_not_raised_is_undone_too(connection, schema, dataset):
    """The right to read the table is granted before the name is refused; the control is a name that is new."""
    connection.execute(TRY_TO_REGISTER, (dataset, f"{schema}.u"))
    assert connection.execute(MAY_READ, (f"{schema}.u",)).fetchone() == (False,)
    assert "is registered already" in refusal(connection, "select dbdp_internal.accepted()").message_primary
    with connection.transaction(force_rollback=True):
        connection.execute(TRY_TO_REGISTER, (f"{dataset}_u", f"{schema}.u"))
        assert connection.execute(MAY_READ, (f"{schema}.u",)).fetchone() == (True,)


def test_a_refusal_that_was_not_raised_does_not_end_a_later_call(connection, dataset):
    connection.execute("select dbdp_internal.try_dp_explain('nowhere', 1)")
    assert connection.execute("select dbdp.dp_explain(%s, 1) is not null", (dataset,)).fetchone() == (True,)


SIMILAR = {
    "dp_train(%s, 1, algorithm => 'DP-SGD')": "did you mean 'dp_sgd'?",
    "dp_train(%s, 1, loss => 'logistc')": "did you mean 'logistic'?",
    "dp_train(%s, 1, 1e-6, 'bolt_on', schedule => 'constnat')": "did you mean 'constant'?",
    """dp_train(%s, 1, 1e-6, 'dp_agd', settings => '{"split": 20}')""": "did you mean 'splits'?",
    "dp_explain_score(%s, 'acuracy', 1)": "did you mean 'accuracy'?",
    "dp_bounds(%s, 'yy', 1)": "did you mean 'y'?",
    "dp_explain(%s || 'x', 1)": "did you mean '{}'?",
    "dp_explain('a_rather_long_schema_of_some_owner.' || %s, 1)": "did you mean '{}'?",
}


@pytest.mark.parametrize("call", SIMILAR)
def test_a_misspelt_word_names_the_nearest(connection, dataset, call):
    shown = refusal(connection, f"select dbdp.{call}", dataset)
    assert shown.message_primary.endswith(SIMILAR[call].format(dataset))


def test_a_dataset_that_the_caller_may_not_use_is_not_suggested(connection, dataset, analyst):
    """The control is the caller once it may."""
    for granted in (False, True):
        if granted:
            connection.execute("select dbdp.grant_training(%s, %s)", (dataset, analyst))
        with acting(connection, analyst):
            shown = refusal(connection, "select dbdp.dp_explain(%s, 1)", f"{dataset}x")
        assert ("did you mean" in shown.message_primary) == granted


def test_regularization_is_regularisation(connection, dataset):
    spelt = "select dbdp.dp_explain(%s, 1, algorithm => 'bolt_on', {} => 0.01)::text"
    plans = [
        connection.execute(spelt.format(word), (dataset,)).fetchone() for word in ("regularization", "regularisation")
    ]
    assert plans[0] == plans[1]
    both = "select dbdp.dp_explain(%s, 1, algorithm => 'bolt_on', regularisation => 0.1, regularization => 0.1)"
    assert "passed twice" in refusal(connection, both, dataset).message_primary


def test_public_facts_that_void_a_guarantee_are_warnings(connection, schema, dataset, make_role):
    """A δ of 1/n, and a right without its role; the control of each is the same call without the fault."""
    texts = []
    connection.add_notice_handler(lambda notice: texts.append((notice.severity_nonlocalized, notice.message_primary)))
    role = make_role("predictor", "dbdp_predictor")
    connection.execute("select dbdp.grant_training(%s, %s)", (dataset, role))
    connection.execute(f"grant dbdp_analyst to {role}")
    connection.execute("select dbdp.grant_training(%s, %s)", (dataset, role))
    with connection.transaction(force_rollback=True):
        connection.execute(REGISTER.replace("1e-3", "1/60.0"), ("much", f"{schema}.u"))
    with connection.transaction(force_rollback=True):
        connection.execute(REGISTER, ("little", f"{schema}.u"))
    assert [level for level, _ in texts] == ["WARNING", "WARNING"]
    assert f"role '{role}' is not a member of dbdp_analyst, and so may not train yet" in texts[0][1]
    assert "delta = 0.0166667 is at least 1/60" in texts[1][1]


def test_the_extensions_own_role_is_granted_nothing(connection, dataset):
    """It would be told to become an analyst; the control is a role that may be granted."""
    shown = refusal(connection, "select dbdp.grant_training(%s, 'dbdp_owner')", dataset)
    assert shown.message_primary.startswith("dbdp: dbdp_owner is for the extension's functions")
    assert refusal(connection, "select dbdp.grant_prediction(1, 'dbdp_owner')").message_primary == shown.message_primary
    with connection.transaction(force_rollback=True):
        connection.execute("select dbdp.grant_training(%s, 'dbdp_analyst')", (dataset,))


DECLARED = "select dbdp.register_dataset(%s, 'u', 'y', '1', %s, 1, 1e-12, capacity => %s)"
QUOTED = "'a' has two categories, 0 and 120; a row with any number between has neither; if they are bounds"


@pytest.mark.parametrize(
    ("features", "capacity", "warnings"),
    [
        ('{"a": ["0", "120"]}', 100, [QUOTED]),
        ('{"a": ["0", "1"]}', 100, []),
        ('{"a": ["0", "60", "120"]}', 100, []),
        ('{"w": ["0", "120"]}', 100, []),
        ('{"a": [0, 120]}', 600_000_000, ["each training packs 600000000 places, empty ones too"]),
        ('{"a": [0, 120]}', 100_000, []),
    ],
)
def test_quoted_bounds_and_huge_capacities_are_warnings(connection, schema, features, capacity, warnings):
    """Either would be accepted in silence, and be met by the first training that is charged."""
    connection.execute("create table u as select i as a, 'x' as w, i % 2 as y from generate_series(1, 60) as i")
    texts = []
    connection.add_notice_handler(lambda notice: texts.append(notice.message_primary))
    with connection.transaction(force_rollback=True):
        connection.execute(DECLARED, (schema, features, capacity))
    assert len(texts) == len(warnings)
    for text, warning in zip(texts, warnings, strict=True):
        assert text.startswith(f"dbdp: {warning}")


def test_a_capacity_that_is_raised_beyond_a_disk_is_a_warning(connection, dataset):
    texts = []
    connection.add_notice_handler(lambda notice: texts.append(notice.message_primary))
    for capacity in (1000, 10**10):
        with connection.transaction(force_rollback=True):
            connection.execute("select dbdp.raise_capacity(%s, 'growth', %s)", (dataset, capacity))
    assert len(texts) == 1
    assert texts[0].startswith("dbdp: each training packs 10000000000 places")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("""features => '{"a": [0, null]}', delta => 1e-6""", "feature 'a' is declared as [0, null];"),
        ("""features => '{"a": [0, 9]}', delta => 1e-6, unit => 'w'""", "max_rows is missing: the two belong together"),
        ("""features => '{"a": [0, 9]}'""", "delta is required, e.g. delta => 1e-6, about 1/(10 · rows)"),
    ],
)
def test_a_registration_is_refused_in_the_words_of_sql(connection, schema, given, words):
    connection.execute("create table u as select i as a, 'x' as w, i % 2 as y from generate_series(1, 60) as i")
    shown = refusal(
        connection, f"select dbdp.register_dataset('u', 'u', label => 'y', positive => '1', epsilon => 1, {given})"
    )
    assert shown.message_primary.startswith(f"dbdp: {words}")
    assert "None" not in shown.message_primary


def test_a_client_shows_the_servers_warnings_as_pythons(database, make_role, dataset):
    role = make_role("idle")
    with pytest.warns(UserWarning, match=f"^role '{role}' is not a member of dbdp_analyst"):
        database.grant_training(dataset, role)


@pytest.mark.parametrize(("epsilon", "warns"), [(19.9, False), (20, True)])
def test_an_epsilon_that_promises_next_to_nothing_is_a_warning(connection, schema, dataset, epsilon, warns):
    texts = []
    connection.add_notice_handler(lambda notice: texts.append(notice.message_primary))
    sql = REGISTER.replace("1, 1e-3)", f"{epsilon}, 1e-3)")
    with connection.transaction(force_rollback=True):
        connection.execute(sql, (f"{dataset}_u", f"{schema}.u"))
    assert [text.startswith(f"dbdp: epsilon = {epsilon} promises next to nothing") for text in texts] == [True] * warns


def test_a_label_of_words_with_bounds_is_refused(connection, schema, dataset):
    """The control is the same table with a label of numbers."""
    connection.execute("create table words as select x, y::text as y from u")
    sql = REGISTER.replace("'y', '1', ", "label => 'y', label_bounds => array[0, 1], features => ")
    sql = sql.replace(", 1, 1e-3)", ", epsilon => 1, delta => 1e-3)")
    text = refusal(connection, sql, f"{dataset}_u", f"{schema}.words").message_primary
    assert "column 'y'" in text
    assert "is text; it must be one of smallint" in text
    assert text.endswith("for words declare them: categories of a feature, positive or classes of a label")
    with connection.transaction(force_rollback=True):
        connection.execute(sql, (f"{dataset}_u", f"{schema}.u"))


def test_a_grant_to_a_role_that_may_not_predict_is_a_warning(connection, schema, dataset, make_role):
    """The control is the role once it may."""
    connection.execute(f"select dbdp.dp_logreg(%s, 1, name => 'of_{schema}')", (dataset,))
    texts = []
    connection.add_notice_handler(lambda notice: texts.append(notice.message_primary))
    role = make_role("predictor")
    for _ in range(2):
        connection.execute("select dbdp.grant_prediction(%s::text, %s)", (f"of_{schema}", role))
        connection.execute(f"grant dbdp_predictor to {role}")
    texts = [text for text in texts if text.startswith("dbdp: ")]
    assert len(texts) == 1
    assert f"role '{role}' is not a member of dbdp_predictor, and so may not predict yet" in texts[0]
