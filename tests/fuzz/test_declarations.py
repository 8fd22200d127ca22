"""Whatever is declared of a table, the registration is sound or refused, and leaves nothing behind."""

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from making import call, create, register
from values import CATEGORIES, NUMBERS, ODD_NUMBERS, TEXT, VALUES, VECTORS, Table, mutated
from watch import SHARES, Watch

COLUMNS = {f"c {number}": kind for number, kind in enumerate(VALUES)}
MADE_BY = "create view a_view as select * from t; create index an_index on t (y); create sequence a_sequence; "
MADE_BY += "create materialized view stored as select * from t; create temporary table mine (y int); "
MADE_BY += "create type composite as (y int); create table parent (y int); create table child () inherits (parent)"
ODD_FEATURES = ["[" * 3000 + "]" * 3000, "9" * 5000, '{"c 0": [0, 1e999]}', "null", None]
SOURCES = ["a_view", "an_index", "a_sequence", "stored", "mine", "composite", "parent", "child"]
SOURCES += ["pg_class", "99999999", "0", "dbdp.dataset"]
FORMATS = ("22P02", "22P05", "22003", "22021")  # what is no json, or no text, is none of ours


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a registration, sound ones with some changed."""
    given = draw(_sound())
    changes = {
        "features": mutated(json.loads(given["features"])).map(json.dumps) | st.sampled_from(ODD_FEATURES),
        "label": st.sampled_from([*COLUMNS, "nope", "", None]) | TEXT,
        "intercept": st.just(None),
        "mode": st.sampled_from(["renyi", "gaussian", "nope", "", None]),
        "name": st.sampled_from(["", "x" * 64, "it's \"", None]) | TEXT,
        "source": st.sampled_from(SOURCES),
        "epsilon": st.sampled_from([*ODD_NUMBERS, None]),
        "delta": st.sampled_from([*ODD_NUMBERS, None]),
        "positive": TEXT | st.none(),
        "negative": TEXT,
        "classes": st.lists(TEXT | st.sampled_from(["0", "a", None]), max_size=4),
        "label_bounds": st.lists(st.sampled_from([*ODD_NUMBERS, 1.0, None]), max_size=3),
    }
    for name in draw(st.lists(st.sampled_from(list(changes)), max_size=2)):
        given[name] = draw(changes[name])
    return given


@st.composite
def _sound(draw: st.DrawFn) -> dict[str, Any]:
    label = draw(st.sampled_from([*(name for name, kind in COLUMNS.items() if kind in CATEGORIES), "y"]))
    others = [name for name in COLUMNS if name != label]
    if draw(st.integers(0, 3)) == 0:
        chosen = [draw(st.sampled_from([name for name in others if COLUMNS[name] in VECTORS]))]
    else:
        plain = [name for name in others if COLUMNS[name] not in VECTORS]
        chosen = draw(st.lists(st.sampled_from(plain), min_size=1, max_size=3, unique=True))
    features = {name: draw(_feature(COLUMNS[name])) for name in chosen}
    first, second, *_ = CATEGORIES[COLUMNS.get(label, "integer")]
    declared = draw(st.sampled_from([{"positive": first, "negative": second}, {"classes": [first, second]}]))
    budget = draw(st.sampled_from([(10.0, 1e-3), (1e6, 0.5)]))
    more = {"name": "d", "source": "t", "mode": draw(st.sampled_from(["basic", "renyi", "gaussian"]))}
    options = {"label": label, "features": json.dumps(features), "epsilon": budget[0], "delta": budget[1]}
    return options | declared | more | {"intercept": draw(st.booleans())}


def _feature(kind: str) -> st.SearchStrategy[Any]:
    if kind in VECTORS:
        return st.just({"length": 3, "norm": 1})
    sound: list[Any] = [list(CATEGORIES[kind])] if kind in CATEGORIES else []
    if kind in NUMBERS:
        ranges = [[-1, 1], [0, 1e300], [1, 1 + 2**-52], [0, 1e-100], [0, 5e-324], [-1e300, 1e300]]
        codings = [{"bins": 2}, {"bins": 1000}, {"bins": 1}, {"scale": "asinh"}, {"scale": "asinh", "bins": 8}]
        sound += [*ranges, *({"bounds": bounds} | coding for bounds in ranges for coding in codings)]
    return st.sampled_from(sound)


@pytest.mark.parametrize("share", SHARES)
def test_a_declaration_is_sound_or_refused(watch, share):
    create(watch.connection, Table((*COLUMNS.items(), ("y", "integer")), _gallery(), {}, "plain", True))
    watch.connection.execute(MADE_BY)
    watch.allowed = FORMATS

    def check(given: dict[str, Any]) -> None:
        if register(watch, **given).error is None:
            kind = next(kind for kind in ("positive", "classes", "label_bounds") if given.get(kind) is not None)
            train_once(watch.of(given["name"]), given["name"], kind)
            watch.attempt("select dbdp.drop_dataset(%s)", [given["name"]])

    share.cases(2000, declarations(), check)
    watch.saw_both()


def _gallery() -> tuple[tuple[str | None, ...], ...]:
    """A row of nulls, and two of the first values that each type has."""
    values = {name: CATEGORIES.get(kind, ("0.5",))[0] for name, kind in COLUMNS.items()}
    values |= {name: "{0.5,0.5,0.5}" for name, kind in COLUMNS.items() if "[]" in kind or "vector" in kind}
    whole = (*values.values(), "1")
    return (None,) * len(whole), whole, whole


def train_once(watch: Watch, name: str, kind: str) -> None:
    loss = {"loss": "huber_regression"} if kind == "label_bounds" else {}
    arguments = {"dataset": name, "epsilon": 0.5, "algorithm": "bolt_on", "epochs": 1} | loss
    explained = watch.attempt(*call("dp_explain", arguments))
    trained = watch.attempt(*call("dp_train", arguments), charges=1, stores=1)
    assert (trained.error is None) == (explained.error is None) or "does not cover" in trained.message, trained
