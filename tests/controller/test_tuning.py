"""Private tuning: the choice is charged once and is in the receipt, and nothing else of the runs is stored."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
import pytest
from acting import acting
from pairs import a_third_quick, others_slow
from released import released

from dbdp.algorithms import PERTURBED_ONCE, Request
from dbdp.algorithms.combined import tuning
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.controller import ChargedError, packed_rows
from dbdp.interfaces.python.client.connecting import connect
from dbdp.privacy.accounting.events import pure_divergence
from dbdp.privacy.selection import ExponentialMechanism, Repetitions
from dbdp.registry.results.models import ReleasedModel

Register = Callable[..., str]
ROWS, FEATURES = 600, 4
GOOD, BAD = {"epochs": 3}, {"epochs": 3, "positive_weight": 1e5}  # the bad one takes every row for a positive one
METHODS = ("disjoint_portions", "random_repetition")
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
EVERY_INTERFACE = pytest.mark.parametrize("interface", ["client", "server"])
METHOD_AND_INTERFACE = pytest.mark.parametrize(("method", "interface"), a_third_quick(METHODS, ["client", "server"]))
DECLARED = {
    "binary": {"positive": "1", "negative": "-1"},
    "classes": {"label": "k", "positive": None, "classes": ["a", "b", "c"]},
    "real": {"label": "r", "positive": None, "label_bounds": [-1, 1]},
}


@pytest.fixture
def table(connection: psycopg.Connection, schema: str) -> str:
    """A table whose labels are decided by its first feature."""
    random = np.random.default_rng()
    features = random.uniform(-1, 1, size=(ROWS, FEATURES)) / 2
    connection.execute("create table t (x float8[], y int, k text, r float8)")
    with connection.cursor().copy("copy t from stdin") as copy:
        for row in features.tolist():
            label = 1 if row[0] > 0 else -1
            copy.write_row(("{" + ",".join(map(repr, row)) + "}", label, "abc"[int((row[0] + 0.5) * 2.999)], row[0]))
    return "t"


@pytest.fixture
def dataset(table: str, register: Register) -> Callable[..., str]:
    """Register the table with a label of that kind."""

    def call(kind: str = "binary", **given: Any) -> str:
        features = {"x": {"length": FEATURES, "norm": 1}}
        return register(table, **{"features": features, "epsilon": 1e4, "delta": 0.1} | DECLARED[kind] | given)

    return call


OWN = ("method", "repetitions", "distribution", "selection_epsilon")  # of a tuning, beside those of a training


def tuning_of(*candidates: dict[str, Any], method: str = METHODS[0], **more: Any) -> TuningRequest:
    """A tuning of much ε, so that noise decides nothing."""
    own = {name: more.pop(name) for name in OWN[1:] if name in more}
    base = Request(**{"epsilon": 50.0, "delta": 1e-5, "algorithm": "bolt_on", "batch_size": 10} | more)
    return TuningRequest(base, candidates or (BAD, GOOD, BAD), method, **own)


def through(interface: str, connection: psycopg.Connection, name: str, request: TuningRequest) -> ReleasedModel:
    """Tune through an interface; a model as both give it."""
    database = connect(connection)
    if interface == "client":
        return database.tune(name, request)
    base = {each: value for each, value in vars(request.base).items() if value is not None}
    own = {each: getattr(request, each) for each in OWN}
    arguments = base | {each: value for each, value in own.items() if value is not None}
    options = ", ".join(f"{each} => %({each})s" for each in arguments)
    call = f"dbdp.dp_tune(%(name)s, %(candidates)s, {options})"
    [row] = released(connection, call, arguments | {"name": name, "candidates": json.dumps(request.candidates)})
    return ReleasedModel(
        row["model"], name, [], row["coefficients"], row["intercept"], row["intercepts"], row["receipt"]
    )


@METHOD_AND_INTERFACE
def test_a_good_candidate_is_chosen_and_reported(connection, dataset, method, interface):
    """The bad ones err on half of the rows: they are chosen with probability exp(-εgap/2), with a gap above 30."""
    connection.execute("insert into t select t.* from t, generate_series(1, 3)")  # so that a portion has enough rows
    name, request = dataset(), tuning_of(method=method)
    model = through(interface, connection, name, request)
    assert model.receipt["candidates"] == [BAD, GOOD, BAD]
    if method == METHODS[0]:
        assert model.receipt["chosen"] == 1
    if model.receipt["chosen"] == 1:  # of few runs at random all may be bad ones
        assert model.coefficients[0] > 5 * np.abs(model.coefficients[1:]).max()


@METHOD_AND_INTERFACE
def test_classes_are_tuned_too(connection, dataset, method, interface):
    model = through(interface, connection, dataset("classes"), tuning_of(GOOD, {"loss": "huber_svm"}, method=method))
    assert np.shape(model.coefficients) == (3, FEATURES)
    assert np.shape(model.intercepts) == (3,)
    assert model.intercept is None
    assert model.receipt["plans"][0]["classes"] == 3


@pytest.mark.parametrize("algorithm", PERTURBED_ONCE)
def test_every_algorithm_that_perturbs_once_can_be_tuned(database, dataset, algorithm):
    settings = {"algorithm": algorithm, **({"batch_size": None} if algorithm == "output_perturbation_gd" else {})}
    model = database.tune(dataset(), tuning_of({**settings, "epochs": 2}, {**settings, "epochs": 3}))
    assert {plan["algorithm"] for plan in model.receipt["plans"]} == {algorithm}
    assert model.receipt["chosen"] in (0, 1)


def test_a_projection_is_common_to_all_candidates(database, dataset):
    model = database.tune(dataset(), tuning_of(projection_dimension=2, projection_seed=7))
    assert {plan["features"] for plan in model.receipt["plans"]} == {3}  # two and the intercept
    assert len(model.coefficients) == FEATURES


RECEIPT_ONLY = ("model", "ledger", "chosen", "version", "released_at", "released_by")


@METHOD_AND_INTERFACE
def test_what_is_explained_is_in_the_receipt_in_every_interface(connection, dataset, method, interface):
    name, request = dataset(), tuning_of(epsilon=1.0, method=method)
    explained = connect(connection).explain_tuning(name, request)
    sql = (
        "select dbdp.dp_explain_tuning(%s, %s, epsilon => 1, delta => 1e-5, "
        "algorithm => 'bolt_on', batch_size => 10, method => %s)"
    )
    candidates = json.dumps(request.candidates)
    assert connection.execute(sql, (name, candidates, method)).fetchone() == (explained,)
    receipt = through(interface, connection, name, request).receipt
    assert {key: value for key, value in receipt.items() if key not in RECEIPT_ONLY} == explained
    assert set(receipt) == set(explained) | set(RECEIPT_ONLY)
    assert sum(explained["portions"]) == ROWS
    assert (explained["algorithm"], explained["method"], explained["epsilon"]) == ("tuning", method, 1.0)


@EVERY_INTERFACE
def test_the_choice_has_the_epsilon_that_is_asked_for(connection, dataset, spent, interface):
    name = dataset(mode="zcdp", epsilon=50)
    receipt = through(interface, connection, name, tuning_of(epsilon=1.0, selection_epsilon=0.75)).receipt
    assert receipt["selection_epsilon"] == 0.75
    assert spent(name) == (math.ceil(4e9 * math.log(math.cosh(0.75 / 4))), 0)  # nearly ε²/8


@EVERY_INTERFACE
def test_disjoint_portions_cost_what_the_most_expensive_one_does(connection, dataset, spent, interface):
    """In basic ε and δ once, not once for each portion (privacy.md §6)."""
    name = dataset()
    through(interface, connection, name, tuning_of(epsilon=2.0))
    assert spent(name) == (2 * 10**9, 10**13)
    pure = tuning_of(epsilon=0.5, delta=0.0)
    through(interface, connection, name, pure)
    assert spent(name) == (25 * 10**8, 10**13)


def test_in_a_ledger_of_renyi_they_cost_the_largest_divergence(database, dataset, spent):
    name = dataset(mode="renyi", epsilon=50)
    receipt = database.tune(name, tuning_of(epsilon=1.0)).receipt
    order, (plan, *_) = receipt["order"], receipt["plans"]
    of_models = order / 2 * (plan["sensitivity"] / plan["noise_scale"]) ** 2
    choice = receipt["selection_epsilon"]
    shares = np.linspace(0, 1, 100_001)  # of the larger of two losses: the worst choice has no others
    moments = np.log1p(shares * math.expm1(order * choice)) - order * np.log1p(shares * math.expm1(choice))
    of_choice = moments.max() / (order - 1)
    assert spent(name)[0] / 1e9 == pytest.approx(max(of_models, of_choice), rel=1e-6)
    assert 0.998 * of_models <= of_choice <= of_models < min(pure_divergence(1.0, order), order / 8) / 3
    assert receipt["charge"] == spent(name)[0] / 1e9
    assert spent(name)[1] == 0


@EVERY_INTERFACE
def test_a_repetition_is_charged_whatever_was_drawn(connection, dataset, spent, interface):
    name, request = dataset(), tuning_of(epsilon=2.0, method=METHODS[1])
    for turn in (1, 2):
        through(interface, connection, name, request)
        assert spent(name) == (turn * 2 * 10**9, turn * 10**13)


@EVERY_METHOD
def test_nothing_but_the_chosen_model_is_stored(connection, database, dataset, method):
    name = dataset()
    model = database.tune(name, tuning_of(method=method))
    stored = connection.execute(
        "select id, coefficients, intercept, receipt from dbdp.models_details where dataset = %s", (name,)
    ).fetchall()
    assert stored == [(model.id, model.coefficients, model.intercept, model.receipt)]
    charged = "select algorithm from dbdp.ledger join dbdp.dataset as d on d.id = dataset_id where name = %s"
    assert connection.execute(charged, (name,)).fetchall() == [("tuning",)]
    left = "select relname from pg_class where relpersistence = 't' and relname like '%dbdp%'"
    assert connection.execute(left).fetchall() == []
    assert "errors" not in json.dumps(model.receipt)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The errors that the last portion gave, for each call."""
    found, original = [], packed_rows.PackedRows.errors

    def errors(self: packed_rows.PackedRows, *arguments: Any) -> int:
        found.append(original(self, *arguments))
        return found[-1]

    monkeypatch.setattr(packed_rows.PackedRows, "errors", errors)
    return found


@pytest.mark.parametrize(("method", "kind"), a_third_quick(METHODS, ["binary", "classes"]))
def test_rows_without_a_label_count_as_errors(connection, database, schema, dataset, counted, method, kind):
    """They keep their place in the portion: every count changes by at most 1 when one record is replaced."""
    column = DECLARED[kind].get("label", "y")
    connection.execute(f"update {schema}.t set {column} = null")
    connection.execute(f"vacuum full {schema}.t")
    receipt = database.tune(dataset(kind), tuning_of(GOOD, GOOD, method=method)).receipt
    assert set(counted) == {receipt["portions"][-1]}


def test_errors_are_those_of_the_rows_of_the_last_portion(connection, database, schema, dataset, counted):
    """A third has no label: of 200 rows about 67 are errors whatever the model, the good one has few more."""
    connection.execute(f"update {schema}.t set y = null where ctid in (select ctid from {schema}.t limit {ROWS // 3})")
    database.tune(dataset(), tuning_of(GOOD, {**BAD}))
    good, bad = counted
    assert 30 < good < 110  # of 200; 67 on average, standard deviation 5.4
    assert 85 < bad < 185  # and half of the others: 133 on average, standard deviation 6.4


def test_the_choice_depends_on_errors_alone(database, dataset, counted, monkeypatch):
    given: list[list[int]] = []
    monkeypatch.setattr(ExponentialMechanism, "choose", lambda self, errors: given.append(list(errors)) or 2)
    assert database.tune(dataset(), tuning_of()).receipt["chosen"] == 2
    assert given == [counted]


class Runs:
    """What a repetition does: reports, epochs, and a number of runs that is fixed instead of drawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch, self._value = monkeypatch, packed_rows.Slice.value
        self.epochs = 0
        self.reports: list[tuple[str, int, int]] = []
        monkeypatch.setattr(packed_rows.Slice, "value", self._counting())

    def _counting(self) -> Callable[..., Any]:
        def value(part: packed_rows.Slice, call: str, *parameters: Any) -> Any:
            self.epochs += "sgd_epoch" in call
            return self._value(part, call, *parameters)

        return value

    def draw(self, number: int | None) -> None:
        """Let the secret number be this one, or the cap."""
        self._monkeypatch.setattr(Repetitions, "draw", lambda it: it.cap if number is None else number)

    def report(self, *reported: Any) -> None:
        self.reports.append(reported)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    yield Runs(monkeypatch)


@pytest.mark.parametrize("distribution", others_slow(["geometric", "poisson"], "geometric"))
def test_the_number_of_runs_is_independent_of_the_number_drawn(connection, database, dataset, runs, distribution):
    """All runs up to the public cap are executed; receipt, ledger and model have the same entries."""
    name = dataset()
    request = tuning_of(GOOD, {**GOOD, "regularisation": 0.01}, method=METHODS[1], distribution=distribution)
    cap, seen = database.explain_tuning(name, request)["runs"], []
    for number in (1, 2, None):
        runs.draw(number)
        runs.epochs, runs.reports = 0, []
        receipt = database.tune(name, request, runs.report).receipt
        assert runs.epochs == cap * GOOD["epochs"]
        assert [each for each in runs.reports if each[0] == "candidate"] == [
            ("candidate", run, cap) for run in range(1, cap + 1)
        ]
        kept = {key: value for key, value in receipt.items() if key not in RECEIPT_ONLY}
        assert set(receipt) == set(kept) | set(RECEIPT_ONLY)
        seen.append((kept, runs.reports))
    assert cap > 10
    assert seen[0] == seen[1] == seen[2]
    sql = "select distinct l.charge, leak, algorithm, plan::text from dbdp.ledger as l " + (
        "join dbdp.dataset as d on d.id = dataset_id where name = %s"
    )
    assert len(connection.execute(sql, (name,)).fetchall()) == 1


def test_the_best_of_the_runs_that_count_is_released(database, dataset, runs, monkeypatch):
    """The bad candidate runs first, then the good one for ever."""
    name, request, order = dataset(), tuning_of(BAD, GOOD, method=METHODS[1]), iter(())

    def begin() -> Iterator[int]:
        yield 0
        while True:
            yield 1

    monkeypatch.setattr(tuning.secrets, "randbelow", lambda _: next(order))
    for number, chosen in ((1, 0), (2, 1), (None, 1)):
        runs.draw(number)
        order = begin()
        model = database.tune(name, request)
        assert model.receipt["chosen"] == chosen
    runs.draw(0)  # as a Poisson number may be: there is nothing to release
    order = begin()
    model = database.tune(name, request)
    assert model.receipt["chosen"] is None
    assert not np.any(model.coefficients)


def test_candidates_are_drawn_evenly(database, dataset, runs, monkeypatch):
    asked_for: list[int] = []
    monkeypatch.setattr(tuning.secrets, "randbelow", lambda bound: asked_for.append(bound) or 0)
    runs.draw(1)
    database.tune(dataset(), tuning_of(GOOD, GOOD, GOOD, method=METHODS[1]))
    assert set(asked_for) == {3}


REFUSED: dict[str, tuple[dict[str, Any], list[Any], str]] = {  # tests/privacy/test_selection.py has all kinds
    "no candidates": ({}, [], "0 candidates are out of range; give 1 to 100"),
    "a candidate with an ε of its own": ({}, [{"epsilon": 2}], "sets epsilon; it may set"),
    "shards": ({"shards": 2}, [GOOD], "tuning trains on one shard over one permutation"),
    "an unknown method": (
        {"method": "grid"},
        [GOOD],
        "method 'grid' is unknown; choose one of disjoint_portions, random",
    ),
    "half a run": (
        {"method": METHODS[1], "repetitions": 0.5},
        [GOOD],
        "repetitions = 0.5 on average must be between 1",
    ),
    "a choice of more than the whole": (
        {"selection_epsilon": 1.5},
        [GOOD],
        "selection_epsilon = 1.5 must be between 1e-09 and 1",
    ),
    "a choice of its own in repetitions": (
        {"method": METHODS[1], "selection_epsilon": 0.5},
        [GOOD],
        "selection_epsilon belongs to method 'disjoint_portions'",
    ),
    "a batch beyond the portion": ({}, [{"batch_size": 301}, GOOD], "batch_size = 301 must be .* between 1 and 200"),
    "a network": ({}, [{"network": "mlp:8"}], "does not support network"),
    "a swap by an option": (
        {"algorithm": "auto"},
        [GOOD],
        "auto chooses preconditioned_gd .* or use algorithm bolt_on",
    ),
    "noise while training": ({}, [{"algorithm": "dp_sgd"}], "'dp_sgd' adds noise while it trains, and .*choose"),
    "more than the budget": ({"epsilon": 1e5}, [GOOD], "does not cover this release"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_tuned_is_refused_before_the_charge(connection, dataset, spent, what):
    settings, candidates, message = REFUSED[what]
    name = dataset()
    own = {each: settings[each] for each in OWN if each in settings}
    base = {"epsilon": 1.0, "delta": 1e-6, "algorithm": "bolt_on"} | {
        each: value for each, value in settings.items() if each not in own
    }
    request = TuningRequest(Request(**base), tuple(candidates), **own)
    for interface in ("client", "server"):
        with pytest.raises((ValueError, psycopg.Error), match=message) as error:
            through(interface, connection, name, request)
        assert not isinstance(error.value, ChargedError)
        assert spent(name) == (0, 0)
    left = "select relname from pg_class where relpersistence = 't' and relname like '%dbdp%'"
    assert connection.execute(left).fetchall() == []


@EVERY_INTERFACE
def test_a_label_that_is_a_number_has_no_errors_to_count(connection, dataset, spent, interface):
    name = dataset("real")
    with pytest.raises((ValueError, psycopg.Error), match="counts wrongly classified rows, and this label is a number"):
        through(interface, connection, name, tuning_of({"loss": "huber_regression"}))
    assert spent(name) == (0, 0)


@EVERY_INTERFACE
@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_a_candidate_that_learns_a_number_is_refused_for_classes(connection, dataset, spent, interface, kind):
    name = dataset(kind)
    with pytest.raises((ValueError, psycopg.Error), match="loss 'squared' is for numeric labels, but "):
        through(interface, connection, name, tuning_of(GOOD, {"loss": "squared"}))
    assert spent(name) == (0, 0)


@pytest.mark.parametrize("candidates", ["{}", "3", "[1]", '"x"', "[[]]", "null"])
def test_candidates_of_another_form_are_refused_with_an_example(connection, dataset, spent, candidates):
    name = dataset()
    with pytest.raises(psycopg.Error, match=r'give a list of objects: \[\{"settings": \{"clip": 0.2\}\}, …\]'):
        connection.execute("select dbdp.dp_tune(%s, %s, 1)", (name, candidates))
    with pytest.raises(psycopg.Error, match=r"candidates is required, e\.g\. candidates => '"):
        connection.execute("select dbdp.dp_tune(%s, null, 1)", (name,))
    assert spent(name) == (0, 0)


def test_fewer_rows_than_portions_are_refused(connection, schema, register):
    connection.execute("create table few as select array[i, 1, 1]::float8[] x, i % 2 y from generate_series(1, 3) i")
    with pytest.raises(ValueError, match="3 rows cannot be split into 4 portions; give fewer candidates"):
        connect(connection).tune(register("few"), tuning_of({}, {}, {}, batch_size=None))


def test_an_analyst_tunes_in_the_server(connection, dataset, analyst):
    name = dataset()
    connection.execute("select dbdp.grant_training(%s, %s)", (name, analyst))
    with acting(connection, analyst):
        for method in METHODS:
            model = connect(connection).tune(name, tuning_of(GOOD, BAD, method=method, repetitions=None))
            assert model.receipt["released_by"] == analyst
            assert len(model.coefficients) == len(model.feature_names) == FEATURES
