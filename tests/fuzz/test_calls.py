"""An interface answers or refuses any arguments; a charge is that of the receipt, and nothing else."""

import json
from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from making import call, create, opened
from test_declarations import FORMATS
from values import ELEMENTS, FLOATS, Table, arrays, mutated, requests
from watch import NUMBER, SHARES, WORD, Outcome, Watch, finite

from dbdp.privacy.accounting import events

ROWS = ((f"{{{NUMBER},0.5,1}}", "1", WORD, "0.5"), ("{NaN,1,2}", "0", "a", repr(NUMBER)), (None, None, None, None))
COLUMNS = (("x", "double precision[]"), ("y", "integer"), ("w", "text"), ("z", "double precision"))
VECTOR = {"x": {"length": 3, "norm": 1}}
DATASETS: dict[str, dict[str, Any]] = {
    "vectors": {"label": "y", "positive": "1", "features": VECTOR},
    "classes": {"label": "y", "classes": ["0", "1", "2"], "features": {"w": ["a", "b"], "z": [-1, 1]}},
    "numbers": {"label": "z", "label_bounds": [-1, 1], "features": VECTOR},
}
TRAINING = ["dp_train"] * 6 + ["dp_logreg", "dp_svm", "dp_linreg", "dp_explain", "dp_tune", "dp_explain_tuning"]
NAMES = st.sampled_from([*DATASETS] * 12 + ["nope", "", None, "it's", "x" * 100])


@pytest.fixture
def datasets(watch: Watch) -> Watch:
    """Three tables with datasets of large budgets."""
    for name, declared in DATASETS.items():
        create(watch.connection, Table(COLUMNS, ROWS * 3, {}, "plain", True))
        watch.connection.execute(f"drop table if exists {name}; alter table t rename to {name}")
        opened(watch, name, source=name, **declared)
    return watch


@st.composite
def trainings(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A interface of a training, and arguments."""
    interface, name = draw(st.sampled_from(TRAINING)), draw(NAMES)
    kind = "label_bounds" if name == "numbers" else "positive"
    options = {"dataset": name} | draw(requests(kind))
    if "tun" in interface:
        options = {
            option: value for option, value in options.items() if option in ("dataset", "epsilon", "delta", "loss")
        }
        options["candidates"] = draw(_candidates())
        options["method"] = draw(
            st.sampled_from(["disjoint_portions"] * 3 + ["random_repetition"] * 3 + ["nope", None])
        )
        options["repetitions"] = draw(st.sampled_from([None] * 6 + [1.0, 2.0, 0.0, -1.0, float("nan"), 1e308]))
        options["selection_epsilon"] = draw(st.sampled_from([None] * 6 + [0.01, 0.0, -1.0, float("nan"), 1e308]))
        options["distribution"] = draw(st.sampled_from([None] * 6 + ["geometric", "poisson", "nope"]))
    return interface, options


def _candidates() -> st.SearchStrategy[str | None]:
    sound = [{"regularisation": 0.1}, {"regularisation": 0.01}]
    odd = st.sampled_from(
        [None, "[]", "{}", "null", "[" * 3000 + "]" * 3000, '[{"nope": 1}]', '[{"regularisation": "1"}]']
    )
    return st.just(json.dumps(sound)) | mutated(sound).map(json.dumps) | odd


@pytest.mark.parametrize("share", SHARES)
def test_a_training_is_charged_by_its_receipt_or_refused(datasets, watched_analyst, share):
    watch = watched_analyst
    watch.allowed = FORMATS
    signatures = {interface: arguments_of(watch.ledger, interface) for interface in TRAINING}
    watch.connection.execute("set statement_timeout = '120s'")

    def check(case: tuple[str, dict[str, Any]]) -> None:
        interface, given = case
        renew(datasets, given["dataset"])
        arguments = {name: value for name, value in given.items() if name in signatures[interface]}
        makes = 0 if "explain" in interface else 1
        watch.of(given["dataset"] or "")
        released(watch.attempt(*call(interface, arguments), charges=makes, stores=makes))

    share.cases(3000, trainings(), check)
    watch.saw_both()


def arguments_of(ledger: psycopg.Connection, interface: str) -> set[str]:
    sql = "select proargnames[1:pronargs] from pg_proc where proname = %s and pronamespace = 'dbdp'::regnamespace"
    return set(ledger.execute(sql, (interface,)).fetchone()[0])


def renew(owner: Watch, name: str | None) -> None:
    """Register a dataset again that has spent half of its budget."""
    if name in DATASETS and 2 * owner.of(name).spent()[0] > 10**15:
        owner.connection.execute("select dbdp.drop_dataset(%s)", (name,))
        opened(owner, name, source=name, **DATASETS[name])


def released(outcome: Outcome) -> None:
    if outcome.rows and len(outcome.rows[0]) == 5:
        model, coefficients, _, intercepts, receipt = outcome.rows[0]
        assert finite(coefficients)
        assert finite(intercepts)
        assert model == receipt["model"]


EVENTS: list[events.Event] = [
    events.GaussianDpEvent(2.0),
    events.ZCDpEvent(0.1),
    events.EpsilonDeltaDpEvent(0.5, 0.0),
    events.SphericalLaplaceDpEvent(0.5, 7),
    events.PerturbedMinimumDpEvent(events.GaussianDpEvent(4.0), 1, 0.1, (0.5, 1.0), 0.9, 1e-9),
    events.ShuffledGaussianDpEvent((0.5, 0.5), (2.0, 3.0)),
    events.PoissonGaussianDpEvent(0.1, 1.0, 3),
    events.ComposedDpEvent((events.ZCDpEvent(0.1), events.GaussianDpEvent(2.0))),
    events.SelfComposedDpEvent(events.GaussianDpEvent(2.0), 3),
    events.DisjointDpEvent((events.ZCDpEvent(0.1), events.ExponentialMechanismDpEvent(0.3))),
    events.RepeatAndSelectDpEvent(events.ZCDpEvent(0.1), 2.0, 1.0, 1e-12),
]
PLANS = [{"algorithm": "bolt_on", "guarantee": events.Release(each, 1.0, 1e-9).as_data()} for each in EVENTS]
DEEP = "[" * 3000 + "]" * 3000
RECEIPT = {"algorithm": "bolt_on", "epsilon": 1.0, "delta": 0.0}
NETWORK = {"inputs": 4, "outputs": 1, "intercept": True, "scale": 1, "channels": [], "hidden": [], "projection": None}
OPTIONS = {"key": "00" * 32, "first": 0, "last": 3, "cuts": [1]}
POISSON = {
    "poisson": {"probability": 0.5, "steps": 2, "size": 3, "apart": True},
    "projection": {"dimension": 2, "seed": 1},
}
OPTIONS_OF_SHUFFLE = st.sampled_from([{}, OPTIONS, POISSON, {"cuts": [2, 4]}])


def written(sound: Any) -> st.SearchStrategy[str | None]:
    """JSON of the value, or of something like it, or of no end."""
    return mutated(sound).map(json.dumps) | st.sampled_from([json.dumps(sound), None, DEEP, "9" * 5000, '{"a": 1e999}'])


@st.composite
def forgeries(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A interface of an owner, and arguments."""
    interface = draw(
        st.sampled_from(["charge", "store_release", "store_network", "shuffle", "drop_dataset", "check_rows"])
    )
    options: dict[str, Any] = {"name" if "drop" in interface else "dataset": draw(NAMES)}
    if interface == "charge":
        options["plan"] = draw(written(draw(st.sampled_from(PLANS))))
    elif interface == "store_release":
        numbers = ELEMENTS.filter(lambda text: text != "NULL")
        options["coefficients"] = draw(st.none() | arrays(numbers, 3))
        options["intercepts"] = draw(st.sampled_from(["{0}", "{0}", "{}", "{NULL}", "{NaN}", "{0,1}", None, "{{0}}"]))
        options["receipt"] = draw(written(RECEIPT))
    elif interface == "store_network":
        options |= {"network": draw(written(NETWORK)), "parameters": draw(st.none() | arrays(FLOATS, 4))}
        options["receipt"] = draw(written(RECEIPT))
    elif interface == "shuffle":
        options["blocks"] = draw(
            st.sampled_from(["pg_temp.packed"] * 5 + ["nope", "", "packed; select 1", "vectors", None])
        )
        options["options"] = draw(written(draw(OPTIONS_OF_SHUFFLE)))
    return interface, options


@pytest.mark.parametrize("share", SHARES)
def test_an_owner_forges_no_budget(datasets, share):
    watch = datasets
    watch.connection.execute("create temporary table packed (block_no int8, block bytea)")
    watch.allowed = (*FORMATS, "42P01", "42703", "42601")

    def check(case: tuple[str, dict[str, Any]]) -> None:
        interface, given = case
        name = given.get("dataset", given.get("name"))
        renew(watch, name)
        watch.of(name or "")
        makes = {"charge": {"charges": 1}, "store_release": {"stores": 1}, "store_network": {"stores": 1}}.get(
            interface, {}
        )
        done = watch.attempt(*call(interface, given), **makes)
        watch.connection.execute("truncate packed")
        if name in DATASETS and done.error is None and interface == "drop_dataset":
            opened(watch, name, source=name, **DATASETS[name])

    share.cases(1000, forgeries(), check)
    watch.saw_both()
