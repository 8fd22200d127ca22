"""A receipt of every kind of release keeps its names, in their order: users and stored rows depend on them.

A difference is a decision: read it, then renew the file: DBDP_RENEW_GOLDEN=1 pytest tests/controller/test_receipts.py.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from short import FEW

import dbdp
from dbdp.algorithms import ALGORITHMS, Facts, Request, plan
from dbdp.algorithms.combined.tuning import TuningRequest
from dbdp.algorithms.scores.metrics import METRICS, OF_NUMBERS
from dbdp.controller.receipts import Receipt
from dbdp.interfaces.python.client.database import Database
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget
from dbdp.privacy.accounting.events import GaussianDpEvent, Release
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import declare

GOLDEN = Path(__file__).parent / "golden" / "receipts.txt"
RENEW = "DBDP_RENEW_GOLDEN"
ROWS = 120
GROUPS = ["a", "b"]
CANDIDATES = [{"epochs": 1}, {"epochs": 2}]
METHODS = ("disjoint_portions", "random_repetition")
LABELS: dict[str, dict[str, Any]] = {
    "binary": {"label": "y", "positive": "1", "negative": "-1", "public_columns": ["k"]},
    "unit": {"label": "y", "positive": "1", "unit": "who", "max_rows": 2},
    "classes": {"label": "k", "classes": ["a", "b", "c"]},
    "real": {"label": "r", "label_bounds": [-1, 1]},
}
BATCHED = set(ALGORITHMS) - {
    "output_perturbation_gd",
    "objective_perturbation",
    "preconditioned_gd",
    "private_splines",
    "privgene",
    "majority",
    "naive_bayes",
    "dp_agd",
    "dp_blgd",
}
KINDS = [f"{prefix}{name}" for name in ALGORITHMS for prefix in ("", "explained ", "unit ")]
UNITS = [each for each in KINDS if each.startswith("unit ")]  # of which each third is quick
KINDS += [f"{prefix}tuning {method}" for method in METHODS for prefix in ("", "explained ")]
KINDS += ["groups", "explained groups", "network", "answered at multiples", "explained at multiples", "real"]
KINDS += [
    f"{prefix}{metric}" for metric in (*METRICS, "class_balance", "bounds", "summary") for prefix in ("", "explained ")
]
QUICK = {each for each in KINDS if each not in UNITS} | set(UNITS[::3])


@pytest.fixture(scope="module")
def names(server_url: str) -> Iterator[dict[str, str]]:
    """A dataset for each kind of label."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("create schema receipts; grant usage on schema receipts to public")
        database = Database(connection)
        for kind, declared in LABELS.items():
            connection.execute(
                f"create table receipts.{kind} as select i / 2 as who, i %% 2 * 2 - 1 as y, "
                "substr('abc', i %% 3 + 1, 1) as k, (i %% 7) / 7.0::float8 as r, (i %% 5) / 5.0::float8 as x "
                "from generate_series(0, %s) as i",
                (ROWS - 1,),
            )
            common = {"features": {"x": [0, 1]}, "epsilon": 1e6, "delta": 0.5, "mode": "basic"}
            database.register_dataset(f"receipts {kind}", f"receipts.{kind}", **common | declared)
        yield {kind: f"receipts {kind}" for kind in LABELS}
        for kind in LABELS:
            database.drop_dataset(f"receipts {kind}")
        connection.execute("drop schema receipts cascade")


def of_training(database: Database, names: dict[str, str], kind: str) -> dict[str, Any]:
    """The receipt of a training by one algorithm of the catalogue."""
    algorithm = kind.rpartition(" ")[2]
    batch_size = 40 if algorithm in BATCHED else None
    request = Request(2.0, 1e-6, algorithm, batch_size=batch_size, **FEW.get(algorithm, {"epochs": 2}))
    dataset = names["unit" if kind.startswith("unit ") else "binary"]
    return (
        database.explain(dataset, request)
        if kind.startswith("explained ")
        else database.train(dataset, request).receipt
    )


def of_tuning(database: Database, names: dict[str, str], kind: str) -> dict[str, Any]:
    request = TuningRequest(
        Request(50.0, 1e-5, algorithm="bolt_on", batch_size=10), tuple(CANDIDATES), kind.rpartition(" ")[2]
    )
    if kind.startswith("explained "):
        return database.explain_tuning(names["binary"], request)
    return database.tune(names["binary"], request).receipt


def of_groups(database: Database, names: dict[str, str], kind: str) -> dict[str, Any]:
    request, given = Request(2.0, 1e-6, "bolt_on", batch_size=10), {"group_by": "k", "groups": GROUPS}
    if kind.startswith("explained "):
        return database.explain_groups(names["binary"], request, **given)
    receipts = [model.receipt for model in database.train_groups(names["binary"], request, **given).values()]
    assert list(receipts[0]) == list(receipts[1])
    return receipts[0]


def of_score(database: Database, names: dict[str, str], kind: str) -> dict[str, Any]:
    metric = kind.rpartition(" ")[2]
    dataset = names["real" if metric in OF_NUMBERS else "binary"]
    if kind.startswith("explained "):
        return database.explain_score(dataset, metric, epsilon=1.0, delta=1e-6)
    if metric == "class_balance":
        return database.class_balance(dataset, epsilon=1.0)["receipt"]
    if metric == "bounds":
        return database.bounds(dataset, "x", epsilon=1.0)["receipt"]
    if metric == "summary":
        return database.summarize(dataset, epsilon=1.0, delta=1e-6).receipt
    sql = "select dbdp_internal.store_release($1, array[0.5]::float8[], array[0.5]::float8[], '{}') ->> 'id' as id"
    model = int(database.query(sql, dataset)[0]["id"])
    return database.score(model, dataset, metric, epsilon=1.0, delta=1e-6)["receipt"]


def of_network(database: Database, names: dict[str, str], kind: str) -> dict[str, Any]:
    request = Request(2.0, 1e-6, algorithm="dp_sgd", network="mlp:4", epochs=1, batch_size=40)
    return database.train(names["classes"], request).receipt


def of_public_times(database: Database, names: dict[str, str], kind: str) -> dict[str, Any]:
    database.answer_at_multiples(names["binary"], "a test", seconds=1)
    try:
        return of_training(database, names, "explained bolt_on" if kind.startswith("explained ") else "bolt_on")
    finally:
        database.answer_at_multiples(names["binary"], "a test", seconds=None)


def of_real(database: Database, names: dict[str, str], kind: str) -> dict[str, Any]:
    return database.train(names["real"], Request(2.0, 1e-6, "bolt_on", loss="huber_regression", batch_size=40)).receipt


def producer(kind: str) -> Callable[[Database, dict[str, str], str], dict[str, Any]]:
    """What makes a receipt of that kind."""
    last = kind.rpartition(" ")[2]
    if last in ALGORITHMS:
        return of_training
    special = {"groups": of_groups, "network": of_network, "multiples": of_public_times, "real": of_real}
    return of_tuning if last in METHODS else special.get(last, of_score)


def golden() -> dict[str, list[str]]:
    """The names of each kind of receipt, in their order."""
    lines = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    return {kind: names.split() for kind, names in (line.split(": ") for line in lines)}


@pytest.mark.parametrize("kinds", [QUICK, pytest.param(set(KINDS) - QUICK, marks=pytest.mark.slow)], ids=len)
def test_a_receipt_keeps_its_names_in_their_order(database, names, kinds):
    present = {kind: list(producer(kind)(database, names, kind)) for kind in KINDS if kind in kinds}
    if os.environ.get(RENEW):
        lines = sorted((golden() | present).items())
        GOLDEN.write_text("".join(f"{each}: {' '.join(keys)}\n" for each, keys in lines))
    assert {kind: keys for kind, keys in golden().items() if kind in kinds} == present


def test_the_server_answers_the_same_names_as_a_client(database, names):
    options = "epsilon => 2, delta => 1e-6, algorithm => 'bolt_on', batch_size => 40"
    [trained] = database.query(f"select model from dbdp.dp_logreg($1, {options})", names["binary"])
    stored = database.query("select receipt::text as r from dbdp.models_details where id = $1", trained["model"])
    explained = database.query(f"select dbdp.dp_explain($1, {options})::text as r", names["binary"])
    assert list(json.loads(stored[0]["r"])) == golden()["bolt_on"]
    assert list(json.loads(explained[0]["r"])) == golden()["explained bolt_on"]


def test_every_receipt_has_what_all_have():
    assert set(golden()) == set(KINDS)
    for kind, keys in golden().items():
        assert set(keys) >= {"dataset", "algorithm", "neighbours", "rows", "epsilon", "delta"}, kind
        assert set(keys) >= {"mode", "order", "charge", "leak"}, kind
        assert {"ledger", "version"}.isdisjoint(keys) == kind.startswith("explained "), kind


def test_numbers_of_a_receipt_are_plain(database, names):
    receipt = of_training(database, names, "explained bolt_on")
    assert json.loads(json.dumps(receipt)) == receipt
    assert not any(isinstance(value, np.generic) for value in receipt.values())


def test_a_receipt_is_charged_without_being_changed():
    declaration = declare(label="y", positive="1", features={"x": [0, 1]})
    dataset = RegisteredDataset(1, "d", "public.t", ROWS, declaration, Budget.of(epsilon=1.0, delta=1e-6, mode="zcdp"))
    planned = plan(Request(0.5, 1e-7, algorithm="bolt_on", batch_size=10), Facts(ROWS, declaration.dimension))
    receipt = Receipt.of(dataset, planned.explain(), planned.guarantee)
    charge, leak = dataset.budget.cost(planned.guarantee)
    before = receipt.as_data()
    assert (before["charge"], before["leak"]) == (charge / CHARGE_UNITS, leak / LEAK_UNITS)
    charged = receipt.charged(7).noting({"chosen": None})
    assert charged.as_data() == before | {"chosen": None, "ledger": 7, "version": dbdp.__version__}
    assert list(charged.as_data())[-3:] == ["chosen", "ledger", "version"]
    assert receipt.as_data() == before
    assert (receipt.ledger, receipt.version) == (None, None)


@pytest.mark.parametrize(("delta", "warns"), [(1e-6, False), (1.1e-6, True)])
@pytest.mark.parametrize("own", [{}, {"warning": "the noise will probably dominate"}])
def test_a_delta_above_the_datasets_is_warned_of(delta, warns, own):
    """It is charged as a divergence: the dataset's guarantee holds, but the release's own is weaker than it reads."""
    declaration = declare(label="y", positive="1", features={"x": [0, 1]})
    dataset = RegisteredDataset(1, "d", "public.t", ROWS, declaration, Budget.of(epsilon=1.0, delta=1e-6))
    planned = plan(Request(0.5, delta, algorithm="bolt_on", batch_size=10), Facts(ROWS, declaration.dimension))
    written = Receipt.of(dataset, planned.explain() | own, planned.guarantee).as_data().get("warning", "")
    text = "delta = 1.1e-06 of this release is above the 1e-06 of the dataset, which all releases together keep; choose"
    assert (text in written) == warns
    assert written.startswith(own.get("warning", ""))


def test_a_release_that_has_no_cost_has_no_receipt():
    declaration = declare(label="y", positive="1", features={"x": [0, 1]})
    dataset = RegisteredDataset(1, "d", "public.t", ROWS, declaration, Budget.of(epsilon=1.0, delta=1e-6))
    boundless = Release(GaussianDpEvent(1e-154), 1.0, 1e-7)
    with pytest.raises(ValueError, match="is above every budget; use more noise"):
        Receipt.of(dataset, {"algorithm": "bolt_on"}, boundless)
