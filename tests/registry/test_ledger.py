"""The ledger: the outcome of each charge, what remains, whether ledger and odometers agree, an owner's amendments."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from acting import acting
from pairs import each_value_quick, others_slow

from dbdp.algorithms import Request
from dbdp.controller import ChargedError
from dbdp.interfaces.python.client.connecting import connect
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier
from dbdp.privacy.accounting.events import GaussianDpEvent, Release, SphericalLaplaceDpEvent
from dbdp.sessions.client import ClientSession
from dbdp.sessions.session import Row

TRAIN = (
    "select model from dbdp.dp_logreg(%s, epsilon => %s, delta => %s, "
    "algorithm => 'bolt_on', epochs => 1, batch_size => 20)"
)
EVERY_INTERFACE = pytest.mark.parametrize("interface", ["server", "client"])


@pytest.fixture
def rival(make_role: Callable[..., str]) -> str:
    """A data owner who owns nothing."""
    return make_role("rival", "dbdp_data_owner")


def train(connection: psycopg.Connection, interface: str, name: str, epsilon: float = 1.0, delta: float = 0.0) -> int:
    if interface == "server":
        return connection.execute(TRAIN, (name, epsilon, delta)).fetchone()[0]
    return (
        connect(connection)
        .train(name, Request(epsilon=epsilon, delta=delta, algorithm="bolt_on", epochs=1, batch_size=20))
        .id
    )


def one(connection: psycopg.Connection, sql: str, *parameters: Any) -> Row:
    """The only row of a query."""
    (row,) = ClientSession(connection).query(sql, *parameters)
    return row


def history(connection: psycopg.Connection, name: str) -> list[Row]:
    return ClientSession(connection).query("select * from dbdp.history_details where dataset = $1 order by id", name)


def number_of(connection: psycopg.Connection, name: str) -> int:
    return one(connection, "select max(id) as number from dbdp.dataset where name = $1", name)["number"]


def budget(connection: psycopg.Connection, name: str, release_delta: float = 0.0) -> Row:
    return one(connection, "select * from dbdp.budget_details($1, $2)", name, release_delta)


def checked(connection: psycopg.Connection, name: str) -> list[tuple[bool, str | None]]:
    sql = "select ok, finding from dbdp.check_ledger() where dataset = %s order by period"
    return connection.execute(sql, (name,)).fetchall()


# --- what became of a charge -----------------------------------------------------------------------------


@EVERY_INTERFACE
def test_history_shows_who_charged_what_and_the_resulting_model(connection, dataset, interface):
    model = train(connection, interface, dataset)
    (row,) = history(connection, dataset)
    assert (row["charged_by"], row["algorithm"], row["outcome"], row["models"]) == (
        "postgres",
        "bolt_on",
        "released",
        [model],
    )
    assert row["event"] == {"event": "SphericalLaplaceDpEvent", "epsilon": 1.0, "dimension": 4}
    assert (row["charge"], row["leak"], row["period"]) == (1, 0, number_of(connection, dataset))
    assert row["charged_at"] <= row["ended_at"]
    receipt = one(connection, "select receipt from dbdp.models_details where id = $1", model)["receipt"]
    assert receipt["ledger"] == row["id"]


def test_a_matrix_that_was_shown_is_no_model(connection, dataset):
    model = train(connection, "server", dataset)
    connection.execute("select dbdp.dp_score(%s, %s, 'confusion', 1)", (model, dataset))
    shown = history(connection, dataset)[1]
    assert (shown["algorithm"], shown["outcome"], shown["models"]) == ("confusion", "shown", None)


def test_a_failure_that_a_client_cannot_note_any_more_stays_open(connection, server_url, dataset):
    with psycopg.connect(server_url, autocommit=True) as other, pytest.raises((ChargedError, psycopg.Error)):
        connect(other).train(
            dataset, Request(epsilon=1.0, algorithm="bolt_on", batch_size=20), lambda *_: other.close()
        )
    assert [row["outcome"] for row in history(connection, dataset)] == [None]


def test_failure_in_the_server_undoes_its_row(connection, dataset):
    """A failure in the server undoes its row and the budget shows it."""
    with connection.transaction(force_rollback=True):
        train(connection, "server", dataset)
    assert history(connection, dataset) == []
    result = budget(connection, dataset)
    assert (result["charged"], result["recorded"], result["unrecorded"], result["releases"]) == (1, 0, 1, 0)
    assert checked(connection, dataset) == [(True, None)]


def charged(connection: psycopg.Connection, name: str) -> int:
    pure = {"event": {"event": "EpsilonDeltaDpEvent", "epsilon": 1, "delta": 0}, "epsilon": 1, "delta": 0}
    plan = json.dumps({"algorithm": "bolt_on", "guarantee": pure})
    return one(connection, "select ledger_id from dbdp_internal.charge($1, $2::json)", name, plan)["ledger_id"]


@pytest.mark.parametrize(
    ("outcome", "refusal"),
    [("released", "'released' must be failed or shown"), ("lost", "'lost' must be failed or shown")],
)
def test_a_client_cannot_override_facts_of_the_server(connection, table, register, outcome, refusal):
    number = charged(connection, register(table))
    with pytest.raises(psycopg.Error, match=refusal):
        connection.execute("select dbdp_internal.record_outcome(%s, %s)", (number, outcome))


def test_outcome_is_recorded_once_by_who_charged(connection, dataset, rival):
    """An outcome is recorded once and by the role that charged."""
    number = charged(connection, dataset)
    say = "select dbdp_internal.record_outcome(%s, 'failed', 'by hand')"
    with acting(connection, rival), pytest.raises(psycopg.Error, match="another role made it"):
        connection.execute(say, (number,))
    connection.execute(say, (number,))
    with pytest.raises(psycopg.Error, match=f"charge {number} has an outcome already"):
        connection.execute(say, (number,))
    assert [(row["outcome"], row["detail"]) for row in history(connection, dataset)] == [("failed", "by hand")]


def test_model_belongs_to_its_own_charge_only(connection, table, register):
    """A model is only the outcome of a charge of the same dataset and role."""
    connection.execute("create table other as select * from t")
    name, other = register(table), register("other")
    store = "select dbdp_internal.store_release(%s, '{1, 2, 3}', '{0}', %s)"
    for paid, refusal in (
        (charged(connection, other), "is of another dataset"),
        (2**62, "is not in the ledger"),
        ("1", "is not in the ledger"),
        ([1], "is not in the ledger"),
    ):
        with pytest.raises(psycopg.Error, match=refusal):
            connection.execute(store, (name, json.dumps({"ledger": paid})))
    connection.execute(store, (name, json.dumps({"ledger": charged(connection, name)})))
    assert [row["outcome"] for row in history(connection, name)] == ["released"]


@pytest.mark.parametrize("action", ["update dbdp.outcome set outcome = 'shown'", "delete from dbdp.outcome"])
@pytest.mark.parametrize("role", ["dbdp_owner", "dbdp_data_owner", "dbdp_analyst"])
def test_outcomes_are_only_added(connection, role, action):
    connection.execute(f"set role {role}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(action)


# --- what is left ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["basic", "renyi", "gaussian", "zcdp"])
@pytest.mark.parametrize("delta", [0.0, 1e-7])
def test_epsilon_left_fits_and_more_does_not(connection, table, register, spent, mode, delta):
    """The epsilon that is left fits and a little more does not."""
    name = register(table, epsilon=3.0, delta=3e-6, mode=mode)
    limits = Budget.of(epsilon=3.0, delta=3e-6, mode=mode)
    pure = {"basic": 2.0, "renyi": 1.8}.get(mode, 0.9)  # so much that less than the budget's ε is left
    first = 2.0 if delta else pure
    train(connection, "server", name, first, delta)
    before = budget(connection, name, delta)
    assert before["charged"] * CHARGE_UNITS == spent(name)[0]
    assert before["leaked"] * LEAK_UNITS == spent(name)[1]
    assert before["charge_limit"] * CHARGE_UNITS == limits.charge_limit
    assert before["left_share"] == pytest.approx(1 - spent(name)[0] / limits.charge_limit)
    left = before["epsilon_left"]
    assert mode != "basic" or left == pytest.approx(3.0 - first, abs=1e-9)
    with pytest.raises(psycopg.Error, match="does not cover this release"):
        train(connection, "server", name, left * 1.001, delta)
    train(connection, "server", name, left, delta)
    after = budget(connection, name, delta)
    assert after["left_share"] < 1e-3
    assert after["epsilon_left"] < left / 10
    assert (after["releases"], after["unrecorded"]) == (2, 0)


@pytest.mark.parametrize("mode", others_slow(["basic", "renyi", "gaussian", "zcdp"], "basic", "renyi"))
def test_as_many_releases_fit_as_are_left_and_not_one_more(connection, table, register, mode):
    """By default of a tenth of ε and δ each: ten of an unspent basic budget, also of 1.1, whose tenth is no float."""
    name = register(table, epsilon=1.1, delta=3e-6, mode=mode)
    fresh = one(connection, "select * from dbdp.budget_details($1)", name)
    assert (fresh["of_epsilon"], fresh["of_delta"], fresh["epsilon_left"]) == (0.11, 3e-7, fresh["epsilon_left"])
    assert mode != "basic" or fresh["releases_left"] == 10
    assert fresh["epsilon_left"] <= 1.1
    train(connection, "server", name, 0.6, 1e-7)
    left = one(connection, "select * from dbdp.budget_details($1, 1e-7, 0.2)", name)
    for passed in range(left["releases_left"]):
        train(connection, "server", name, 0.2, 1e-7)
        rest = one(connection, "select * from dbdp.budget_details($1, 1e-7, 0.2)", name)
        assert rest["releases_left"] == left["releases_left"] - passed - 1
    with pytest.raises(psycopg.Error, match="does not cover this release"):
        train(connection, "server", name, 0.2, 1e-7)


def test_a_budget_of_the_least_epsilon_is_shown(connection, table, register):
    """A tenth of it would be less than any release has."""
    left = one(
        connection, "select * from dbdp.budget_details($1)", register(table, epsilon=2e-9, delta=0.0, mode="basic")
    )
    assert (left["of_epsilon"], left["releases_left"], left["epsilon_left"]) == (1e-9, 2, 2e-9)


def test_nothing_is_left_for_a_delta_that_does_not_fit(connection, table, register):
    name = register(table, epsilon=3.0, delta=3e-6, mode="basic")
    assert budget(connection, name, 4e-6)["epsilon_left"] == 0
    assert budget(connection, name, 3e-6)["epsilon_left"] == 3.0


def test_an_unknown_dataset_or_delta_is_refused_by_name(connection, dataset):
    with pytest.raises(psycopg.Error, match="dataset 'nowhere' is not registered"):
        budget(connection, "nowhere")
    with pytest.raises(psycopg.Error, match=r"release_delta = 1.0 must be at least 0 and below 1"):
        budget(connection, dataset, 1.0)
    with pytest.raises(psycopg.Error, match=r"release_epsilon = 0.0 must be between 1e-09 and 1e\+06"):
        one(connection, "select * from dbdp.budget_details($1, release_epsilon => 0)", dataset)


# --- odometers that nobody can trust ---------------------------------------------------------------------

DAMAGES = {
    "wound back": ("select setval('dbdp.charge_{0}', 1)", "wound back"),
    "leak wound back": ("select setval('dbdp.leak_{0}', 0)", "wound back"),
    "charge missing": ("drop sequence dbdp.charge_{0}", "is missing"),
    "leak missing": ("drop sequence dbdp.leak_{0}", "is missing"),
    "another role's": (
        "alter sequence dbdp.charge_{0} owned by none; alter sequence dbdp.charge_{0} owner to postgres",
        "is missing",
    ),
    "a table": ("drop sequence dbdp.leak_{0}; create table dbdp.leak_{0} as select 0 as last_value", "is missing"),
}


@pytest.mark.parametrize(("damage", "interface"), each_value_quick(list(DAMAGES), ["server", "client"]))
def test_nothing_is_trained_if_the_amount_spent_is_unknown(connection, table, register, damage, interface):
    name = register(table, epsilon=9.0)
    train(connection, "server", name, 1.0, 1e-7)
    action, word = DAMAGES[damage]
    number = number_of(connection, name)
    connection.execute(action.format(number))
    with pytest.raises(psycopg.Error, match=f"{word}.* or begin a new budget with dbdp.renew_budget"):
        train(connection, interface, name)
    assert len(history(connection, name)) == 1
    ((ok, finding),) = checked(connection, name)
    assert (ok, "training is refused" in finding) == (False, True)
    left = budget(connection, name)
    assert (left["left_share"], left["epsilon_left"]) == (0, 0)
    connection.execute("select dbdp.renew_budget(%s, 'the odometers are lost')", (name,))
    train(connection, interface, name)
    forget(connection, number)
    if damage == "a table":
        connection.execute(f"drop table dbdp.leak_{number}")
    connection.execute(f"drop sequence if exists dbdp.charge_{number}, dbdp.leak_{number}")


def forget(connection: psycopg.Connection, number: int) -> None:
    """Delete a registration whose odometers are lost, as only a superuser can: other tests check all of them."""
    of_charges = f"ledger_id in (select id from dbdp.ledger where dataset_id = {number})"
    for where in (
        f"outcome where {of_charges}",
        *(f"{each} where dataset_id = {number}" for each in ("ledger", "model")),
    ):
        connection.execute(f"delete from dbdp.{where}")
    connection.execute(f"delete from dbdp.dataset where id = {number}")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("charge_limit = charge_limit + 10", "limits are not those of the promised"),
        ("epsilon = epsilon / 2", "limits are not those of the promised"),
        ("rdp_order = rdp_order * 1.1", "limits are not those of the promised"),
        ("mode = 'none'", "limits are not those of the promised"),
        ("charge_limit = 1", "more was spent than the limits allow"),
    ],
)
def test_limits_that_were_changed_are_reported(connection, table, register, change, word):
    name = register(table, epsilon=3.0, delta=1e-6, mode="renyi")
    train(connection, "server", name, 0.5)
    assert checked(connection, name) == [(True, None)]
    with connection.transaction(force_rollback=True):
        connection.execute(f"update dbdp.dataset set {change} where name = %s", (name,))
        assert word in checked(connection, name)[0][1]


def test_an_owner_checks_own_registrations_only(connection, table, register, rival):
    register(table)
    with acting(connection, rival):
        assert connection.execute("select * from dbdp.check_ledger()").fetchall() == []


# --- another period --------------------------------------------------------------------------------------


@EVERY_INTERFACE
def test_renewal_begins_a_fresh_budget_and_adds_up(connection, table, register, spent, interface):
    """A renewal begins a fresh budget and what is promised adds up."""
    name = register(table, epsilon=1.0, delta=1e-6, mode="basic")
    first = train(connection, interface, name)
    with pytest.raises(psycopg.Error, match="does not cover"):
        train(connection, interface, name)
    connection.execute("select dbdp.renew_budget(%s, 'the records are a year old', epsilon => 2)", (name,))
    assert spent(name) == (0, 0)
    train(connection, interface, name, 1.5)
    result = budget(connection, name)
    assert (result["epsilon"], result["charged"], result["registrations"]) == (2.0, 1.5, 2)
    assert (result["total_epsilon"], result["total_delta"]) == (3.0, 2e-6)
    assert [row["charge"] for row in history(connection, name)] == [1, 1.5]
    assert len({row["period"] for row in history(connection, name)}) == 2
    assert checked(connection, name) == [(True, None)] * 2
    assert connection.execute("select dbdp.predict(%s, array[1, 2, 3]) is null", (first,)).fetchone() == (False,)
    stored = one(connection, "select * from dbdp.dataset where name = $1 and dropped_at is null", name)
    assert (stored["reason"], stored["registered_by"]) == ("the records are a year old", "postgres")
    former = one(connection, "select * from dbdp.dataset where id = $1", stored["renews"])
    fresh = {"id", "epsilon", "charge_limit", "registered_at", "registered_in", "dropped_at", "renews", "reason"}
    assert {key: stored[key] for key in stored.keys() - fresh} == {key: former[key] for key in former.keys() - fresh}
    assert former["dropped_at"] is not None


def test_a_renewal_that_is_not_committed_pays_for_nothing(connection, table, register, spent):
    name = register(table, epsilon=1.0, delta=0)
    train(connection, "server", name)
    with connection.transaction(force_rollback=True):
        connection.execute("select dbdp.renew_budget(%s, 'to be undone')", (name,))
        with pytest.raises(psycopg.Error, match="was registered in this transaction"):
            train(connection, "server", name)
    assert spent(name) == (CHARGE_UNITS, 0)
    assert budget(connection, name)["total_epsilon"] == 1.0


def test_a_renewal_counts_the_rows_anew(connection, dataset):
    connection.execute("insert into t select * from t limit 7")
    connection.execute("select dbdp.renew_budget(%s, 'seven more patients')", (dataset,))
    train(connection, "server", dataset)
    assert one(connection, "select rows from dbdp.datasets_details where name = $1", dataset) == {"rows": 67}


AMENDMENTS = {
    "renewal": "select dbdp.renew_budget(%s, 'because')",
    "redeclaration": """select dbdp.redeclare(%s, 'because', '{"x": {"length": 3, "norm": 2}}')""",
}


@pytest.mark.parametrize("amendment", AMENDMENTS)
def test_amendment_needs_registrant_reason_and_table(connection, table, register, rival, amendment):
    """An amendment needs the registrant a reason and the table."""
    name, statement = register(table), AMENDMENTS[amendment]
    with acting(connection, rival), pytest.raises(psycopg.Error, match="is not registered"):
        connection.execute(statement, (name,))
    with pytest.raises(psycopg.Error, match="reason is empty"):
        connection.execute(statement.replace("because", " "), (name,))
    with pytest.raises(psycopg.Error, match="'nowhere' is not registered"):
        connection.execute(statement, ("nowhere",))
    connection.execute("drop table t")
    with pytest.raises(psycopg.Error, match=r"table .*\.t of dataset .* was dropped; call dbdp.drop_dataset"):
        connection.execute(statement, (name,))


def test_a_new_budget_that_cannot_be_is_refused(connection, table, register):
    name = register(table, epsilon=1.0, delta=1e-6, mode="renyi")
    for given, refusal in (("epsilon => 0", "must be positive"), ("delta => 0", "needs delta > 0")):
        with pytest.raises(psycopg.Error, match=refusal):
            connection.execute(f"select dbdp.renew_budget(%s, 'because', {given})", (name,))
    assert budget(connection, name)["registrations"] == 1


def test_dropping_and_registering_again_adds_up_like_a_renewal(connection, table, register):
    names = []
    for turn in range(3):
        names.append(register(table, name=f"{table}_{turn}_{id(connection)}", epsilon=1.0, delta=1e-7, mode="basic"))
        if turn != 1:
            train(connection, "server", names[-1])
        if turn < 2:
            connection.execute("select dbdp.drop_dataset(%s)", (names[-1],))
    result = budget(connection, names[-1])
    assert result["registrations"] == 2  # nothing was spent in the second
    assert (result["total_epsilon"], result["total_delta"]) == (2.0, 2e-7)


def test_partition_registered_first_counts_for_the_table(connection, schema, register):
    """A partition that was registered by itself counts for the partitioned table."""
    connection.execute("create table whole (x float8[], y int) partition by list (y)")
    for value in (0, 1):
        connection.execute(f"create table part_{value} partition of whole for values in ({value})")
    connection.execute("insert into whole select array[.1, .2, .3], i % 2 from generate_series(1, 60) i")
    part = register("part_0", epsilon=1.0, delta=0)
    train(connection, "server", part)
    connection.execute("select dbdp.drop_dataset(%s)", (part,))
    assert budget(connection, register("whole", epsilon=2.0, delta=0))["total_epsilon"] == 3.0


# --- corrected declarations ------------------------------------------------------------------------------


def test_redeclaration_touches_no_budget_and_no_model(connection, dataset, spent):
    """A redeclaration corrects bounds and touches neither budget nor models."""
    first, number, before = train(connection, "server", dataset), number_of(connection, dataset), spent(dataset)
    connection.execute("select dbdp.redeclare(%s, 'the norm was 2', %s)", (dataset, '{"x": {"length": 3, "norm": 2}}'))
    assert (number_of(connection, dataset), spent(dataset)) == (number, before)
    second = train(connection, "server", dataset)
    declared = "select declaration #>> '{features,x,norm}' as norm from dbdp.model where id = $1"
    assert [one(connection, declared, model)["norm"] for model in (first, second)] == ["1.0", "2.0"]
    former = one(connection, "select * from dbdp.former_declaration where dataset_id = $1", number)
    assert former["declaration"]["features"]["x"]["norm"] == 1
    assert (former["reason"], former["replaced_by"]) == ("the norm was 2", "postgres")


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ("""features => '{"x": {"length": 3, "norm": 1}}'""", "has this declaration already"),
        ("positive => '1'", "has this declaration already"),
        ("""features => '{"z": [0, 1]}'""", "column 'z' does not exist"),
        ("""features => '{"x": [1, 0]}'""", "bounds of 'x'"),
        ("positive => 'yes'", "label value 'yes' is not of type integer"),
        ("classes => array['0']", "1 classes; it must have 2"),
        ("negative => '0'", "positive is null, and so are classes and label_bounds"),
    ],
)
def test_what_is_no_correction_is_refused_and_changes_nothing(connection, dataset, given, refusal):
    before = one(connection, "select declaration::text from dbdp.dataset where name = $1", dataset)
    with pytest.raises(psycopg.Error, match=refusal):
        connection.execute(f"select dbdp.redeclare(%s, 'because', {given})", (dataset,))
    assert one(connection, "select declaration::text from dbdp.dataset where name = $1", dataset) == before
    assert connection.execute(
        "select count(*) from dbdp.former_declaration where dataset_id = %s", (number_of(connection, dataset),)
    ).fetchone() == (0,)


def test_a_label_may_become_one_of_classes(connection, dataset):
    connection.execute("select dbdp.redeclare(%s, 'three of them', classes => array['0', '1', '2'])", (dataset,))
    model = train(connection, "server", dataset)
    assert connection.execute("select dbdp.predict_class(%s, array[1, 2, 3])", (model,)).fetchone()[0] in "012"


# --- an order that the owner chose ---------------------------------------------------------------------------


def test_owners_order_holds_for_charges_and_renewals(connection, table, register, spent):
    """An owner's order holds for every charge and for a renewed budget."""
    name = register(table, epsilon=1.0, delta=1e-5, mode="renyi", rdp_order=9.5)
    limits = Budget.of(epsilon=1.0, delta=1e-5, order=9.5)
    assert (budget(connection, name)["rdp_order"], limits.order) == (9.5, 9.5)
    train(connection, "server", name, 0.1, 1e-6)
    alone = Release(GaussianDpEvent(analytic_noise_multiplier(0.1, 1e-6)), 0.1, 1e-6)
    assert spent(name)[0] == pytest.approx(limits.cost(alone)[0], rel=1e-6)
    assert checked(connection, name) == [(True, None)]
    connection.execute("select dbdp.renew_budget(%s, 'because', epsilon => 2)", (name,))
    assert budget(connection, name)["rdp_order"] == 9.5


# --- budgets in ρ ----------------------------------------------------------------------------------------


def test_a_dataset_may_have_a_budget_in_rho(connection, table, register, spent):
    name = register(table, rho=0.5, epsilon=None, delta=1e-6, mode="renyi")
    limits = Budget.of(epsilon=None, rho=0.5, delta=1e-6)
    result = budget(connection, name)
    assert (result["mode"], result["epsilon"], result["charge_limit"]) == ("zcdp", limits.epsilon, 0.5)
    train(connection, "server", name, 0.1)
    alone = Release(SphericalLaplaceDpEvent(0.1, 4), 0.1, 0.0)
    assert spent(name)[0] == limits.cost(alone)[0] < 0.1**2 / 2 / 3 * CHARGE_UNITS
    assert checked(connection, name) == [(True, None)]
    connection.execute("select dbdp.renew_budget(%s, 'because')", (name,))
    assert abs(budget(connection, name)["charge_limit"] * CHARGE_UNITS - CHARGE_UNITS // 2) <= 1
