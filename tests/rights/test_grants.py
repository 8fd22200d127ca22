"""Rights: an owner lets others train and predict, each sees its own, and what a role may spend is exact."""

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
import pytest
from pairs import each_value_quick
from stages import GRANT, MATRIX, NO_MODEL, PREDICT, REVOKE, TRAIN, UNKNOWN, Stage, refused

from dbdp.algorithms import Facts, Request, plan
from dbdp.interfaces.python.client.connecting import connect
from dbdp.privacy.accounting.budget import CHARGE_UNITS, Budget
from dbdp.privacy.accounting.events import Release

# --- who may train --------------------------------------------------------------------------------------


INTERFACES = {
    "training": "select dbdp.dp_logreg('{}', 1)",
    "training with noise in every update": "select dbdp.dp_train('{}', 1, 1e-6, 'dp_sgd')",
    "tuning": """select dbdp.dp_tune('{}', '[{{"schedule": "square_root"}}]', 1, algorithm => 'bolt_on')""",
    "explaining": "select dbdp.dp_explain('{}', 1)",
    "explaining a tuning": """select dbdp.dp_explain_tuning('{}', '[{{"schedule": "square_root"}}]', 1,
        algorithm => 'bolt_on')""",
    "scoring": "select dbdp.dp_score(1, '{}', 'confusion', 1)",
    "summarizing": "select dbdp.dp_summarize('{}', 1, 1e-6)",
    "counting by groups": "select * from dbdp.dp_table('{}', '{{y}}', 1)",
    "explaining a table": "select dbdp.dp_explain_table('{}', '{{y}}', 1)",
    "estimating quantiles": "select * from dbdp.dp_quantiles('{}', 'y', '{{.5}}', 1, 1e-6)",
    "explaining quantiles": "select dbdp.dp_explain_quantiles('{}', 'y', 1, 1e-6)",
    "describing": "select * from dbdp.dp_describe('{}', 1, 1e-6)",
}
INTERFACES_OF_OWNERS = {
    "charging": "select dbdp_internal.charge('{}', '{{}}')",
    "storing": "select dbdp_internal.store_release('{}', '{{1, 2, 3}}', '{{0}}', '{{}}')",
    "storing a network": "select dbdp_internal.store_network('{}', '{{}}', '{{1}}', '{{}}')",
    "packing": "select dbdp_internal.shuffle('{}', 'pg_temp.b')",
    "checking rows": "select dbdp_internal.check_rows('{}')",
    "closing": "select dbdp.drop_dataset('{}')",
    "granting": "select dbdp.grant_training('{}', 'postgres')",
    "revoking": "select dbdp.revoke_training('{}', 'postgres')",
}


@pytest.mark.parametrize("kind", ["alice", "rival"])
def test_dataset_without_a_right_seems_not_registered(stage, kind):
    """Word for word as for a name that nobody registered, also for a role that may read the table."""
    stage.register()
    stage.connection.execute(f"grant select on t to {stage.rival}")
    for interface, statement in (INTERFACES | (INTERFACES_OF_OWNERS if kind == "rival" else {})).items():
        texts = []
        for name in (stage.name, "nobody_registered_this"):
            with stage.acting(kind) as stranger, pytest.raises(psycopg.Error) as error:
                stranger.execute(statement.format(name))
            texts.append(error.value.diag.message_primary.replace(name, "<name>"))
        assert texts == ["dbdp: " + UNKNOWN.format("<name>")] * 2, interface
    with stage.acting(kind) as stranger:
        for view in ("dbdp.dataset", "dbdp.datasets"):
            assert stranger.execute(f"select from {view} where name = %s", (stage.name,)).fetchall() == []
        with pytest.raises(ValueError, match="is not registered"):
            connect(stranger).train(stage.name, Request(epsilon=1.0, algorithm="bolt_on", batch_size=20))
    assert stage.spent() == 0


def test_the_owner_and_its_members_train_without_a_grant(stage):
    stage.register()
    stage.train("owner")
    stage.connection.execute(f"grant {stage.owner} to {stage.alice}")
    stage.train("alice")
    assert stage.spent() == 2 * CHARGE_UNITS
    assert (
        stage.one("select count(*) from dbdp.ledger where charged_by = %s and allowance_id is null", stage.alice) == 1
    )


def test_grant_opens_every_interface_and_revocation_closes(stage):
    """A grant opens every interface of an analyst and a revocation closes it."""
    stage.register()
    stage.grant("alice")
    model = stage.train("alice")
    with stage.acting("alice") as alice:
        assert alice.execute("select source from dbdp.datasets_details where name = %s", (stage.name,)).fetchone()
        alice.execute(INTERFACES["explaining"].format(stage.name))
        assert alice.execute(MATRIX, (model, stage.name)).fetchone() == (True,)
    with stage.acting("owner") as owner:
        owner.execute(REVOKE, (stage.name, stage.alice))
    with refused(UNKNOWN.format(stage.name)):
        stage.train("alice")
    with stage.acting("alice") as alice:
        assert alice.execute("select from dbdp.datasets_details where name = %s", (stage.name,)).fetchall() == []
        assert alice.execute(PREDICT, (model,)).fetchone() == (True,)  # what was released stays released


def test_only_the_registrant_grants_revokes_and_drops(stage):
    """Not one with a right, nor the analyst's own role; a superuser is a member of every role."""
    stage.register()
    stage.grant("rival")
    drop = "select dbdp.drop_dataset(%s)"
    for statement, action, *given in (
        (GRANT, "grant training", stage.bob, None),
        (REVOKE, "revoke training", stage.bob),
        (drop, "drop it"),
    ):
        with stage.acting("rival") as rival, refused(f"belongs to {stage.owner}; only that role may {action}"):
            rival.execute(statement, (stage.name, *given))
        with stage.acting("alice") as alice, pytest.raises(psycopg.errors.InsufficientPrivilege):
            alice.execute(statement, (stage.name, *given))
    stage.connection.execute(GRANT, (stage.name, stage.bob, None))
    stage.train("bob")
    assert stage.one("select granted_by from dbdp.allowance where role = %s", stage.bob) == "postgres"


WRONG = {
    "no such role": ("'nobody_at_all'", "role 'nobody_at_all' does not exist"),
    "a null role": ("null", "role is required, e.g. role => a name"),
    "more than the whole": ("'postgres', 4.5", "epsilon = 4.5 of an allowance is above the 4 of the dataset"),
    "nothing": ("'postgres', 0", "epsilon = 0.0 must be positive"),
    "less than nothing": ("'postgres', -1", "epsilon = -1.0 must be positive"),
    "no number": ("'postgres', 'NaN'", "epsilon = nan must be positive"),
    "too much": ("'postgres', 'infinity'", "epsilon = inf must be positive"),
}


def test_no_allowance_is_refused_in_clear_words(stage):
    stage.register(epsilon=4.0, mode="renyi")
    with stage.acting("owner") as owner:
        for given, message in WRONG.values():
            with refused(message):
                owner.execute(f"select dbdp.grant_training('{stage.name}', {given})".encode())
        with refused(f"role '{stage.bob}' was not granted training"):
            owner.execute(REVOKE, (stage.name, stage.bob))
    assert stage.one("select count(*) from dbdp.allowances_details where dataset = %s", stage.name) == 0


def test_a_dataset_registered_again_is_open_to_no_other_role(stage):
    """It may be registered and opened in one transaction."""
    with stage.connection.transaction():
        stage.register()
        stage.grant("alice")
    stage.train("alice")
    with stage.acting("owner") as owner:
        owner.execute("select dbdp.drop_dataset(%s)", (stage.name,))
    stage.register()
    with refused(UNKNOWN.format(stage.name)):
        stage.train("alice")


# --- what a role may spend ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["basic", "renyi", "gaussian"])
def test_an_allowance_is_spent_to_its_last_unit_and_no_further(stage, mode):
    """Its limits are those of a budget of its own (ε, δ); the charge is that of every release, at its own order."""
    budget, delta = Budget.of(epsilon=6.0, delta=1e-5, mode=mode), 1e-6
    own = budget.allowance(2.0)
    stage.register(epsilon=6.0, delta=1e-5, mode=mode)
    stage.grant("alice", 2.0)
    limits = "select charge_limit, leak_limit, rdp_order from dbdp.allowance where role = %s"
    stored = stage.connection.execute(limits, (stage.alice,)).fetchone()
    assert stored == (own.charge_limit, own.leak_limit, own.order)
    request = Request(epsilon=0.7, delta=delta, algorithm="bolt_on", epochs=1, batch_size=20)
    guarantee = release_of(request)
    cost, leak = own.cost(guarantee)
    passed = 0
    while cost * (passed + 1) <= own.charge_limit and leak * (passed + 1) <= own.leak_limit:
        stage.train("alice", 0.7, delta)
        passed += 1
    assert passed > 0
    with refused(f"the allowance of role '{stage.alice}' on dataset '{stage.name}' does not cover this release"):
        stage.train("alice", 0.7, delta)
    assert (stage.spent("alice"), stage.spent()) == (passed * cost, passed * budget.cost(guarantee)[0])
    stage.train("owner", 0.7, delta)


def test_a_leak_beyond_its_part_is_refused(stage):
    stage.register(epsilon=4.0, delta=4e-6)
    stage.grant("alice", 1.0)
    stage.train("alice", 0.1, 1e-6)
    with refused("10 % of its delta, and 0 % is left; an epsilon up to 0.9 fits at delta = 0, with noise"):
        stage.train("alice", 0.1, 1e-7)
    assert stage.spent() == stage.spent("alice") == CHARGE_UNITS // 10


def test_without_an_epsilon_the_datasets_budget_alone_binds(stage):
    stage.register(epsilon=2.0, delta=0.0)
    stage.grant("alice")
    stage.train("alice", 2.0)
    with refused(f"the budget of dataset '{stage.name}' does not cover this release"):
        stage.train("alice", 1e-9)


def test_allowances_may_exceed_the_budget_which_holds(stage):
    """Allowances may add up to more than the budget which still limits them."""
    stage.register(epsilon=2.0, delta=0.0)
    stage.grant("alice", 1.5)
    stage.grant("bob", 1.5)
    stage.train("alice", 1.5)
    with refused(f"the budget of dataset '{stage.name}' does not cover this release: it needs 50 %, and 25 % is left"):
        stage.train("bob", 1.0)
    stage.train("bob", 0.5)
    assert (stage.spent("alice"), stage.spent("bob"), stage.spent()) == (1_500_000_000, 500_000_000, 2_000_000_000)


def test_what_is_refused_by_one_limit_advances_no_odometer(stage):
    stage.register(epsilon=2.0, delta=0.0)
    stage.grant("alice", 0.5)
    with refused("the allowance of role"):
        stage.train("alice", 0.6)
    stage.train("owner", 1.7)
    with refused("the budget of dataset"):
        stage.train("alice", 0.4)
    assert (stage.spent("alice"), stage.spent()) == (0, 1_700_000_000)


def test_past_spending_counts_when_granted_again(stage):
    """Also what it spent while it had no limit."""
    stage.register()
    stage.grant("alice")
    stage.train("alice", 0.8)
    with stage.acting("owner") as owner:
        owner.execute(REVOKE, (stage.name, stage.alice))
    stage.grant("alice", 1.0)
    with refused("it needs 30 %, and 20 % is left"):
        stage.train("alice", 0.3)
    stage.train("alice", 0.2)
    stage.grant("alice", 1.5)
    with refused("it needs 40 %, and 33.3 % is left"):
        stage.train("alice", 0.6)
    stage.grant("alice", 0.5)  # below what is spent: nothing more
    with refused("and 0 % is left; nothing more fits"):
        stage.train("alice", 1e-9)
    assert stage.spent("alice") == CHARGE_UNITS


def test_a_rollback_refunds_no_allowance(stage):
    """Nor does an exception that is caught. An allowance of a third of 1 is 333,333,333 units, of which each counts."""
    stage.register(epsilon=1.0, delta=0.0)
    stage.grant("alice", 1 / 3)
    with stage.connection.transaction(force_rollback=True):
        stage.train("alice", 0.233333333)
    with stage.session("alice") as alice:
        alice.execute(f"""
do $$ begin
  perform dbdp.dp_logreg('{stage.name}', 0.1, algorithm => 'bolt_on', batch_size => 20);
  raise exception 'seen it';
exception when others then null; end $$""")
        with refused("it needs 0.000000301 %, and 0 % is left; nothing more fits"):
            alice.execute(TRAIN, (stage.name, 1e-9, 0.0))
    assert stage.spent("alice") == stage.spent() == 333_333_333


@pytest.mark.parametrize("interface", ["server", "client"])
def test_both_interfaces_charge_the_allowance(stage, interface):
    stage.register()
    stage.connection.execute(f"grant select on t to {stage.rival}")
    stage.grant("rival", 1.0)
    stages: list[str] = []
    with stage.acting("rival") as rival:
        if interface == "server":
            rival.execute(TRAIN, (stage.name, 0.8, 0.0))
        else:
            request = Request(epsilon=0.8, algorithm="bolt_on", batch_size=20)
            connect(rival).train(stage.name, request, lambda stage, *_: stages.append(stage))
        with pytest.raises((psycopg.Error, ValueError), match="the allowance of role"):
            connect(rival).train(stage.name, Request(epsilon=0.3, algorithm="bolt_on", batch_size=20))
    assert bool(stages) == (interface == "client")
    assert stage.spent("rival") == stage.spent() == 800_000_000


def test_a_matrix_is_charged_to_the_allowance(stage):
    stage.register()
    stage.grant("alice", 1.5)
    model = stage.train("alice", 1.0)
    with stage.acting("alice") as alice, refused("the allowance of role"):
        alice.execute(MATRIX, (model, stage.name))
    assert stage.spent("alice") == CHARGE_UNITS


def test_two_analysts_at_once_overdraw_nothing(stage):
    """Six sessions; the budget holds five releases, each allowance three."""
    epsilon = 0.123456789
    stage.register(epsilon=5 * epsilon + 1e-9, delta=0.0)
    for kind in ("alice", "bob"):
        stage.grant(kind, 3 * epsilon + 1e-8)
    together = threading.Barrier(6)

    def attempt(number: int) -> int:
        passed = 0
        with stage.session(("alice", "bob")[number % 2]) as mine:
            together.wait()
            for _ in range(2):
                try:
                    mine.execute(TRAIN, (stage.name, epsilon, 0.0))
                    passed += 1
                except psycopg.Error as error:
                    assert "does not cover this release" in str(error)
        return passed

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 5
    assert stage.spent() == 5 * 123_456_789
    assert sorted((stage.spent("alice"), stage.spent("bob"))) == [2 * 123_456_789, 3 * 123_456_789]


# --- an allowance is a budget of its own ----------------------------------------------------------------


def order_of(stage: Stage) -> float | None:
    return stage.one(
        "select rdp_order from dbdp.allowances_details where dataset = %s and role = %s", stage.name, stage.alice
    )


def test_the_order_of_an_allowance_is_fixed_by_its_first_charge(stage):
    """Until then that of its own ε; afterwards each limit is that of the new ε at the order of what was spent."""
    budget = Budget.of(epsilon=4.0, delta=1e-5)
    stage.register(epsilon=4.0, delta=1e-5, mode="renyi")
    for epsilon in (0.5, 2.0):
        stage.grant("alice", epsilon)
        assert order_of(stage) == budget.allowance(epsilon).order
    stage.train("alice", 0.2, 1e-7)
    fixed, spent = budget.allowance(2.0).order, stage.spent("alice")
    for epsilon in (1.0, None, 4.0):
        stage.grant("alice", epsilon)
        limits = stage.one("select charge_limit from dbdp.allowance where role = %s", stage.alice)
        assert limits == (None if epsilon is None else budget.allowance(epsilon, fixed).charge_limit)
        assert order_of(stage) == fixed
    stage.train("alice", 0.2, 1e-7)
    assert stage.spent("alice") == 2 * spent


def test_what_was_spent_without_a_limit_fixes_the_datasets_order(stage):
    """Also by a revocation; an ε that this order cannot count is refused, and the former right stays."""
    budget = Budget.of(epsilon=4.0, delta=1e-5)
    stage.register(epsilon=4.0, delta=1e-5, mode="renyi")
    stage.grant("alice")
    stage.train("alice", 0.2, 1e-7)
    with stage.acting("owner") as owner:
        owner.execute(REVOKE, (stage.name, stage.alice))
    with refused("epsilon = 0.1 of an allowance is too small to be counted at order .*; give more, or revoke it"):
        stage.grant("alice", 0.1)
    with refused(UNKNOWN.format(stage.name)):
        stage.train("alice", 0.1)
    stage.grant("alice", 3.0)
    limit = stage.one("select charge_limit from dbdp.allowance where role = %s", stage.alice)
    assert (order_of(stage), limit) == (budget.order, budget.allowance(3.0, budget.order).charge_limit)
    assert stage.spent("alice") == stage.spent()


def test_a_charge_waits_for_a_grant_and_counts_at_its_order(stage):
    """At repeatable read, with a snapshot of before the grant, it is refused instead, and nothing is spent."""
    budget = Budget.of(epsilon=4.0, delta=1e-5)
    stage.register(epsilon=4.0, delta=1e-5, mode="renyi")
    stage.grant("alice", 0.5)
    request = Request(epsilon=0.2, delta=1e-7, algorithm="bolt_on", epochs=1, batch_size=20)
    cost = budget.allowance(2.0).cost(release_of(request))[0]
    with stage.session("owner") as owner, stage.session("alice") as alice, stage.session("alice") as old:
        old.execute("begin isolation level repeatable read; select count(*) from dbdp.allowances_details")
        with ThreadPoolExecutor(1) as pool:
            owner.execute("begin")
            owner.execute(GRANT, (stage.name, stage.alice, 2.0))
            waiting = pool.submit(alice.execute, TRAIN, (stage.name, 0.2, 1e-7))
            wait_until_blocked(stage, alice)
            owner.execute("commit")
            waiting.result(60)
        with pytest.raises(psycopg.errors.SerializationFailure):
            old.execute(TRAIN, (stage.name, 0.2, 1e-7))
    assert stage.spent("alice") == cost != budget.allowance(0.5).cost(release_of(request))[0]


def test_grant_waits_for_another_and_fixes_the_order(stage):
    """Of two first grants at once the second reads the odometers when it has the row; an old snapshot is refused."""
    stage.register(epsilon=4.0, delta=1e-5, mode="renyi")
    with stage.session("owner") as first, stage.session("owner") as second, stage.session("owner") as old:
        old.execute("begin isolation level repeatable read; select count(*) from dbdp.allowances_details")
        with ThreadPoolExecutor(1) as pool:
            first.execute("begin")
            first.execute(GRANT, (stage.name, stage.alice, 0.5))
            waiting = pool.submit(second.execute, GRANT, (stage.name, stage.alice, 2.0))
            wait_until_blocked(stage, second)
            first.execute("commit")
            waiting.result(60)
        stage.train("alice", 0.2, 1e-7)
        order = order_of(stage)
        with pytest.raises(psycopg.errors.SerializationFailure):
            old.execute(GRANT, (stage.name, stage.alice, 4.0))
        second.execute(GRANT, (stage.name, stage.alice, 4.0))
    assert order_of(stage) == order == Budget.of(epsilon=4.0, delta=1e-5).allowance(2.0).order


def wait_until_blocked(stage: Stage, session: psycopg.Connection) -> None:
    sql = "select cardinality(pg_blocking_pids(%s)) > 0"
    while not stage.one(sql, session.info.backend_pid):
        time.sleep(0.01)


def release_of(request: Request) -> Release:
    return plan(request, Facts(60, 4)).mechanism.guarantee


FITTING = re.compile(r"an epsilon up to (\S+) fits at delta = (\S+), with noise at the end")
LIMITS = {  # ε of the dataset and of the allowance, who spends first, and the refused ε
    "the allowance": (3.0, 0.5, "alice", 1.5),
    "the dataset": (0.5, 0.5, "owner", 1.5),
    "the allowance, though the dataset refuses": (1.0, 0.5, "alice", 9.0),
}


@pytest.mark.parametrize(("mode", "what"), each_value_quick(["basic", "renyi", "gaussian", "zcdp"], list(LIMITS)))
def test_epsilon_of_a_refusal_fits_and_more_does_not(stage, mode, what):
    """It is at the release's δ, and fits the dataset's budget and the allowance alike."""
    epsilon, own, first, beyond = LIMITS[what]
    stage.register(epsilon=epsilon, delta=1e-5, mode=mode)
    stage.grant("alice", own)
    stage.train(first, 0.4, 1e-7)
    refuses = "budget of dataset" if "dataset" in what else "allowance of role"
    with pytest.raises(psycopg.Error, match=f"the {refuses} .* does not cover this release: it needs") as refusal:
        stage.train("alice", beyond, 1e-7)
    fitting, delta = (float(number) for number in FITTING.search(str(refusal.value)).groups())
    assert delta == 1e-7
    assert "(dbdp.allowances and dbdp.budget show what is left)" in str(refusal.value)
    with refused("does not cover this release"):
        stage.train("alice", fitting * 1.002, 1e-7)
    before = stage.spent("alice")
    stage.train("alice", fitting, 1e-7)
    assert stage.spent("alice") > before


def test_plan_shows_the_charge_to_the_allowance(stage):
    """Also the largest ε that the allowance has left, which fits; the owner's plan has neither."""
    stage.register(epsilon=4.0, delta=1e-5, mode="renyi")
    stage.grant("alice", 0.5)
    stage.grant("bob", 1.0)
    explain = "select dbdp.dp_explain(%s, 0.2, 1e-7, algorithm => 'bolt_on', epochs => 1, batch_size => 20)"
    with stage.acting("alice") as alice:
        planned = alice.execute(explain, (stage.name,)).fetchone()[0]
    assert list(planned["allowance_charges"]) == [stage.alice]
    stage.train("alice", 0.2, 1e-7)
    assert planned["allowance_charges"][stage.alice] * CHARGE_UNITS == pytest.approx(stage.spent("alice"))
    assert planned["charge"] * CHARGE_UNITS == pytest.approx(stage.spent())
    with stage.acting("owner") as owner:
        assert "allowance_charges" not in owner.execute(explain, (stage.name,)).fetchone()[0]
    left = "select epsilon_left from dbdp.allowances_details where dataset = %s and role = %s"
    stage.train("alice", stage.one(left, stage.name, stage.alice), 1e-6)
    assert stage.one(left, stage.name, stage.alice) < 0.05


# --- members --------------------------------------------------------------------------------------------


def test_members_of_a_role_share_its_allowance(stage):
    stage.register()
    stage.connection.execute(f"grant {stage.team} to {stage.alice}, {stage.bob}")
    stage.grant("team", 1.0)
    stage.train("alice", 0.7)
    with refused(f"the allowance of role '{stage.team}' .* it needs 40 %, and 30 % is left"):
        stage.train("bob", 0.4)
    stage.train("bob", 0.3)
    assert stage.spent("team") == CHARGE_UNITS


def test_an_allowance_of_ones_own_takes_the_place_of_the_teams(stage):
    """So that an owner can hold one member to less; without it the team's counts again."""
    stage.register()
    stage.connection.execute(f"grant {stage.team} to {stage.alice}")
    stage.grant("team", 5.0)
    stage.grant("alice", 1.0)
    stage.train("alice", 1.0)
    with refused(f"the allowance of role '{stage.alice}'"):
        stage.train("alice", 1e-9)
    with stage.acting("owner") as owner:
        owner.execute(REVOKE, (stage.name, stage.alice))
    stage.train("alice", 2.0)
    assert (stage.spent("alice"), stage.spent("team")) == (CHARGE_UNITS, 2 * CHARGE_UNITS)


def test_first_team_that_covers_a_release_is_charged(stage):
    """Of several teams the first by name that covers a release is charged."""
    stage.register()
    first, second = f"a_{stage.schema}", f"b_{stage.schema}"
    stage.connection.execute(f"create role {first} role {stage.alice}; create role {second} role {stage.alice}")
    for role, epsilon in ((second, 2.0), (first, 1.0)):
        stage.connection.execute(GRANT, (stage.name, role, epsilon))
    for epsilon in (0.8, 0.8, 0.2):
        stage.train("alice", epsilon)
    sql = "select role::text, charged from dbdp.allowances_details where dataset = %s order by role"
    assert stage.connection.execute(sql, (stage.name,)).fetchall() == [(first, 1.0), (second, 0.8)]
    with refused(f"the allowance of role '{first}'"):
        stage.train("alice", 1.3)
    sql = "select role::text, count(*) from dbdp.ledger join dbdp.allowance a on a.id = allowance_id"
    counted = stage.connection.execute(f"{sql} where charged_by = %s group by role order by role", (stage.alice,))
    assert counted.fetchall() == [(first, 2), (second, 1)]


def test_a_dataset_can_be_opened_to_all_analysts(stage):
    stage.register()
    with stage.acting("owner") as owner:
        owner.execute(GRANT, (stage.name, "dbdp_analyst", 2.0))
    stage.train("alice")
    stage.train("bob")
    with refused("the allowance of role 'dbdp_analyst'"):
        stage.train("bob")


def test_set_role_neither_adds_a_right_nor_removes_one(stage):
    """Rights are those of the role that logged in: bob, as whom alice may act, keeps his own."""
    stage.register()
    stage.grant("alice")
    model = stage.train("alice")
    stage.connection.execute(f"grant {stage.alice} to {stage.bob}")
    with stage.session("bob") as bob:
        bob.execute(TRAIN, (stage.name, 1.0, 0.0))  # a member of alice
        bob.execute(f"set role {stage.alice}")
        assert bob.execute("select count(*) from dbdp.models_details where dataset = %s", (stage.name,)).fetchone() == (
            2,
        )
    with stage.session("alice") as alice:
        alice.execute("set role none")
        own = "select array_agg(id) from dbdp.models_details where dataset = %s"
        assert alice.execute(own, (stage.name,)).fetchone() == ([model],)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            alice.execute(f"set role {stage.bob}")


# --- what a role sees -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What one role sees of a dataset's rows: charges by whom, models, allowances of whom."""

    charges: list[str]
    models: list[int]
    allowances: list[str]


def seen(stage: Stage, kind: str | None) -> Seen:
    """By the views and by the tables below them alike."""
    results = []
    for sql in (
        "select charged_by::text from dbdp.ledger where charged_by like '%{0}' order by 1",
        "select id from dbdp.models_details where receipt ->> 'released_by' like '%{0}' order by 1",
        "select role::text from dbdp.allowances_details where role like '%{0}' order by 1",
        "select id from dbdp.model where released_by like '%{0}' order by 1",
        "select role::text from dbdp.allowance where role like '%{0}' order by 1",
    ):
        if kind is None:
            rows = stage.connection.execute(sql.format(stage.schema).encode())
        else:
            with stage.acting(kind) as reader:
                rows = reader.execute(sql.format(stage.schema).encode())
        results.append([value for (value,) in rows.fetchall()])
    assert results[1:3] == results[3:]
    return Seen(*results[:3])


def test_each_role_sees_its_own_and_an_owner_all_of_its_datasets(stage):
    stage.register()
    stage.grant("alice", 2.0)
    stage.grant("bob", 3.0)
    models = [stage.train(kind) for kind in ("alice", "bob", "owner")]
    assert seen(stage, "alice") == Seen([stage.alice], models[:1], [stage.alice])
    assert seen(stage, "bob") == Seen([stage.bob], models[1:2], [stage.bob])
    everything = Seen([stage.alice, stage.bob, stage.owner], models, [stage.alice, stage.bob])
    assert seen(stage, "owner") == everything == seen(stage, None)
    assert seen(stage, "rival") == Seen([], [], [])
    stage.connection.execute(f"grant {stage.owner} to {stage.rival}")
    assert seen(stage, "rival") == everything


def test_role_sees_only_its_own_allowance(stage):
    """A role sees what is left of its allowance, and nothing of other allowances."""
    stage.register(epsilon=8.0, delta=8e-6)
    stage.grant("alice", 2.0)
    stage.grant("bob")
    stage.train("alice", 0.5, 1e-7)
    other = stage.one("select id from dbdp.allowance where role = %s", stage.bob)
    with stage.acting("alice") as alice:
        (row,) = (each for each in connect(alice).allowances() if each["dataset"] == stage.name)
        assert alice.execute("select * from dbdp_internal.allowance_spent(%s)", (other,)).fetchall() == [(None,) * 4]
    assert (row["role"], row["epsilon"], row["charge_limit"], row["leak_limit"]) == (stage.alice, 2.0, 2.0, 2e-6)
    assert (row["charged"], row["leaked"]) == (0.5, 1e-7)
    assert (row["delta"], row["left_share"], row["epsilon_left"]) == (2e-6, 0.75, 1.5)
    with stage.acting("bob") as bob:
        (row,) = (each for each in connect(bob).allowances() if each["dataset"] == stage.name)
    unlimited = ("epsilon", "delta", "left_share", "epsilon_left", "charge_limit", "leak_limit")
    assert [row[name] for name in unlimited] == [None] * len(unlimited)
    assert row["charged"] == 0


def test_models_of_others_are_not_guessed_by_their_numbers(stage):
    """Prediction, its description and a matrix answer as for a model that there is not."""
    stage.register()
    for kind in ("alice", "bob"):
        stage.grant(kind)
    model = stage.train("alice")
    missing = model + 1_000_000
    with stage.session("bob") as bob:
        for number in (model, missing):
            with refused(NO_MODEL.format(number)):
                bob.execute(PREDICT, (number,))
            with refused(NO_MODEL.format(number)):
                bob.execute(MATRIX, (number, stage.name))
            with refused(NO_MODEL.format(number)):
                bob.execute("select dbdp.grant_prediction(%s, session_user)", (number,))
            assert bob.execute("select dbdp_internal.model_description(%s)", (number,)).fetchone() == (None,)
    assert stage.spent() == CHARGE_UNITS


def test_rows_of_roles_that_are_gone_raise_nothing(stage):
    """The owner of the dataset, an analyst with an allowance, and one who released a model."""
    stage.register()
    for kind in ("alice", "bob"):
        stage.grant(kind)
    model = stage.train("alice")
    with stage.acting("owner") as owner:
        owner.execute("select dbdp.grant_prediction(%s, %s)", (model, stage.bob))
    stage.connection.execute(f"drop owned by {stage.alice}; drop role {stage.alice}")
    with stage.acting("owner") as owner:
        assert owner.execute("select count(*) from dbdp.models_details where id = %s", (model,)).fetchone() == (1,)
        owner.execute(REVOKE, (stage.name, stage.alice))
    stage.connection.execute(f"alter table t owner to postgres; drop owned by {stage.owner}; drop role {stage.owner}")
    with stage.session("bob") as bob:
        assert bob.execute(PREDICT, (model,)).fetchone() == (True,)
        for view in ("datasets", "models", "allowances", "ledger", "prediction_grant"):
            bob.execute(f"select count(*) from dbdp.{view}")
        bob.execute(TRAIN, (stage.name, 1.0, 0.0))
    assert stage.connection.execute(MATRIX, (model, stage.name)).fetchone() == (True,)
    stage.connection.execute("select dbdp.drop_dataset(%s)", (stage.name,))  # a superuser still may


# --- the ledger -----------------------------------------------------------------------------------------


FORGERIES = {
    "update dbdp.ledger set charge = 0",
    "delete from dbdp.ledger",
    "truncate dbdp.ledger",
    "alter table dbdp.ledger disable row level security",
    "update dbdp.dataset set charge_limit = 1",
    "update dbdp.dataset set registered_by = 'postgres'",
    "delete from dbdp.dataset",
    "update dbdp.model set released_by = 'postgres'",
    "delete from dbdp.model",
    "update dbdp.allowance set dataset_id = 1",
    "delete from dbdp.allowance",
    "drop policy visible on dbdp.ledger",
    "create policy mine on dbdp.ledger using (true)",
    "create trigger mine before insert on dbdp.ledger execute function tsvector_update_trigger()",
}


def test_not_even_dbdp_owner_rewrites_the_ledger(connection):
    connection.execute("set role dbdp_owner")
    for statement in FORGERIES:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())
    connection.execute("reset role")


def test_a_client_cannot_sign_a_release_with_anothers_name(stage):
    stage.register()
    forged = '{"released_by": "postgres", "dataset": "another", "model": 1}'
    with stage.acting("owner") as owner:
        sql = "select dbdp_internal.store_release(%s, '{1, 2, 3}'::float8[], '{0}'::float8[], %s)"
        made = owner.execute(sql, (stage.name, forged)).fetchone()[0]
    receipt = made["receipt"]
    assert (receipt["released_by"], receipt["dataset"], receipt["model"]) == (stage.owner, stage.name, made["id"])
    assert stage.one("select released_by from dbdp.model order by id desc limit 1") == stage.owner


# --- prediction -----------------------------------------------------------------------------------------


@pytest.fixture
def released(stage: Stage) -> int:
    """A model of alice."""
    stage.register()
    stage.grant("alice")
    return stage.train("alice")


def test_a_model_can_be_granted_to_a_role_that_only_predicts(stage, released):
    """By its own right, or as a member of a team."""
    with stage.session("app") as app, refused(NO_MODEL.format(released)):
        app.execute(PREDICT, (released,))
    stage.connection.execute(f"grant {stage.team} to {stage.rival}")
    with stage.acting("alice") as alice:
        for role in (stage.app, stage.team):
            alice.execute("select dbdp.grant_prediction(%s, %s)", (released, role))
    with stage.session("rival") as member:
        assert member.execute(PREDICT, (released,)).fetchone() == (True,)
    with stage.session("app") as app:
        assert app.execute(PREDICT, (released,)).fetchone() == (True,)
        listed = app.execute("select id from dbdp.models_details where dataset = %s", (stage.name,)).fetchall()
        assert listed == [(released,)]
        for statement in (
            INTERFACES["explaining"].format(stage.name),
            "select from dbdp.dataset",
            "select from dbdp.ledger",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(statement)
    with stage.acting("bob") as bob:
        assert bob.execute("select from dbdp.prediction_grant where model_id = %s", (released,)).fetchall() == []


NO_SUMMARY = "summary {} does not exist; see dbdp.summaries"
SUMMARY_CALLS = ("summary_linreg({}, 'y')", "summary_pca({})", "summary_correlations({})")
SUMMARY_VIEWS = ("summary_describe({})", "summary_table({}, '{{y}}')")
WITH_SUMMARY = "select dbdp.dp_train(%s, 1, 1e-6, 'preconditioned_gd', summary => %s)"


def test_summary_is_used_only_by_those_with_a_right(stage):
    """Without a right it looks as if it did not exist; with one no right on the table is needed."""
    stage.register()
    for kind in ("alice", "bob"):
        stage.grant(kind)
    with stage.acting("alice") as alice:
        summary = alice.execute("select summary from dbdp.dp_summarize(%s, 1, 1e-6)", (stage.name,)).fetchone()[0]
    spent, statements = stage.spent(), [f"select dbdp.{call.format(summary)}" for call in SUMMARY_CALLS]
    views = [f"select dbdp.{call.format(summary)}" for call in SUMMARY_VIEWS]
    listed = "select count(*) from dbdp.summaries_details"
    for kind in ("app", "bob", "rival"):
        with stage.acting(kind) as other:
            assert other.execute(listed).fetchone() == (0,)
            for statement in statements + views:
                with refused(NO_SUMMARY.format(summary)):
                    other.execute(statement)
    with stage.acting("bob") as bob, refused(NO_SUMMARY.format(summary)):
        bob.execute(WITH_SUMMARY, (stage.name, summary))
    assert stage.spent() == spent
    with stage.acting("alice") as alice:
        for kind in ("app", "bob"):
            alice.execute("select dbdp.grant_prediction(%s, %s)", (summary, getattr(stage, kind)))
    for kind in ("alice", "app", "bob", "owner"):
        with stage.acting(kind) as other:
            assert other.execute(listed).fetchone() == (1,)
            for statement in statements:
                assert other.execute(statement).fetchone()[0]["summary"] == summary
            assert all(other.execute(view).rowcount >= 2 for view in views)
            if kind in ("alice", "bob"):
                other.execute(WITH_SUMMARY, (stage.name, summary))
    with stage.acting("app") as app, pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute("select dbdp.dp_summarize(%s, 1, 1e-6)", (stage.name,))
    with stage.acting("owner") as owner:
        owner.execute("select dbdp.revoke_prediction(%s, %s)", (summary, stage.app))
    with stage.acting("app") as app, refused(NO_SUMMARY.format(summary)):
        app.execute(statements[0])


@pytest.mark.parametrize("kind", ["alice", "owner"])
def test_model_is_granted_by_releaser_and_registrant(stage, released, kind):
    """Who released a model and who registered its dataset grant and revoke it."""
    grant, revoke = (f"select dbdp.{each}_prediction(%s, %s)" for each in ("grant", "revoke"))
    with stage.acting(kind) as giver:
        giver.execute(grant, (released, stage.bob))
        giver.execute(grant, (released, stage.bob))
        given = giver.execute("select role from dbdp.prediction_grant where model_id = %s", (released,)).fetchall()
        assert given == [(stage.bob,)]
    with stage.session("bob") as bob:
        assert bob.execute(PREDICT, (released,)).fetchone() == (True,)
        with refused(f"model {released} was released by {stage.alice}; only that role, or the one that registered"):
            bob.execute(grant, (released, stage.app))
    with stage.acting(kind) as giver:
        giver.execute(revoke, (released, stage.bob))
        with refused(f"role '{stage.bob}' was not granted prediction with model {released}"):
            giver.execute(revoke, (released, stage.bob))
        with refused("role 'nobody_at_all' does not exist"):
            giver.execute(grant, (released, "nobody_at_all"))
    with stage.session("bob") as bob, refused(NO_MODEL.format(released)):
        bob.execute(PREDICT, (released,))


def test_a_matrix_needs_a_right_on_the_model_too(stage, released):
    stage.grant("bob")
    with stage.acting("bob") as bob, refused(NO_MODEL.format(released)):
        bob.execute(MATRIX, (released, stage.name))
    stage.connection.execute("select dbdp.grant_prediction(%s, %s)", (released, stage.bob))
    with stage.acting("bob") as bob:
        assert bob.execute(MATRIX, (released, stage.name)).fetchone() == (True,)


def test_a_right_that_is_taken_ends_at_latest_with_the_session(stage, released):
    """A session keeps the models that it has used; it reads no row for a prediction."""
    stage.connection.execute("select dbdp.grant_prediction(%s, %s)", (released, stage.app))
    with stage.session("app") as used, stage.session("app") as unused:
        assert used.execute(PREDICT, (released,)).fetchone() == (True,)
        stage.connection.execute("select dbdp.revoke_prediction(%s, %s)", (released, stage.app))
        assert used.execute(PREDICT, (released,)).fetchone() == (True,)
        with refused(NO_MODEL.format(released)):
            unused.execute(PREDICT, (released,))


def test_a_parallel_worker_has_the_rights_of_its_leader(stage, released):
    stage.connection.execute("create table big as select t.* from t, generate_series(1, 200); analyze big")
    stage.connection.execute(f"grant select on big to {stage.bob}")
    stage.connection.execute("select dbdp.grant_prediction(%s, %s)", (released, stage.bob))
    sql = f"select count(dbdp.predict({released}, x)) from big as w"
    with stage.session("bob") as bob:
        bob.execute(f"""
set search_path = {stage.schema}; set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0;
set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; set parallel_leader_participation = off""")
        assert "Gather" in str(bob.execute(f"explain {sql}").fetchall())
        assert bob.execute(sql).fetchone() == (60 * 200,)


def test_the_policies_look_up_rights_once_for_a_query(stage, released):
    """A plan that checked each row would name the functions outside an InitPlan."""
    with stage.acting("bob") as bob:
        rows = bob.execute("explain (verbose, costs off) select id from dbdp.model").fetchall()
    text = "\n".join(line for (line,) in rows)
    assert text.count("InitPlan") >= 3
    filters = [line for line in text.splitlines() if "Filter" in line]
    assert filters
    assert not any("dbdp." in line or "dbdp_internal." in line for line in filters)
