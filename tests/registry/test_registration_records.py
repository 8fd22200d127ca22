"""Every interface builds the same registration from the same declaration, and the record checks what needs no table."""

import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from commands import features_file

from dbdp.interfaces.cli.main import app
from dbdp.interfaces.python.client.database import Database
from dbdp.privacy.accounting.budget import CHARGE_UNITS, LEAK_UNITS, Budget
from dbdp.registry.registration import LONGEST_NAME, Registration

FEATURES = {"a": [0.0, 1.0], "b": ["u", "v"]}
STATED: dict[str, dict[str, Any]] = {
    "defaults": {"label": "y", "positive": "1", "epsilon": 2.0, "delta": 1e-6},
    "binary, of a unit": {"label": "y", "positive": "1", "negative": "0", "epsilon": 2.0, "delta": 0.1}
    | {"mode": "basic", "unit": "who", "max_rows": 3},
    "classes, by a public column": {"label": "k", "classes": ["x", "y"], "rho": 0.5, "delta": 1e-6}
    | {"public_columns": ["place"], "intercept": False},
    "an order of its own": {"label": "y", "positive": "1", "epsilon": 2.0, "delta": 1e-6, "rdp_order": 9.5},
    "a number": {"label": "r", "label_bounds": [-1.0, 2.0], "epsilon": 1.0, "delta": 1e-5, "mode": "gaussian"},
    "a capacity, a scale and bins": {"label": "y", "positive": "1", "epsilon": 1.0, "delta": 1e-6, "capacity": 30}
    | {"features": {"a": {"bounds": [0.0, 1.0], "scale": "asinh", "bins": 4}, "r": [0.0, 1.0]}},
}
OF_ROWS = ("unit", "max_rows", "capacity")
REPEATED = {"classes": "--class", "public_columns": "--public-column"}
SOUND = Registration(name="n", source="s", label="y", positive="1", features=FEATURES, epsilon=1.0, delta=1e-6)


@pytest.fixture
def source(connection: psycopg.Connection, schema: str) -> str:
    connection.execute(
        "create table t as select i % 2 as y, substr('xy', i % 2 + 1, 1) as k, i / 20.0::float8 as r, "
        "i / 20.0::float8 as a, 'u'::text as b, i / 3 as who, 'here'::text as place from generate_series(1, 20) as i"
    )
    return f"{schema}.t"


def flags(stated: dict[str, Any], directory: Path) -> list[str]:
    """The same as options of the command line."""
    arguments = ["--features", features_file(directory, stated["features"])]
    for name, value in stated.items():
        if name == "features":
            continue
        flag = f"--{name.replace('_', '-')}"
        if name in REPEATED:
            arguments += [word for each in value for word in (REPEATED[name], each)]
        elif name == "label_bounds":
            arguments += [flag, *map(str, value)]
        else:
            arguments += ["--no-intercept"] if name == "intercept" else [flag, str(value)]
    return arguments


def by_command(name: str, source: str, stated: dict[str, Any], directory: Path, url: str) -> None:
    done = CliRunner().invoke(app, ["register", name, source, *flags(stated, directory), "--url", url])
    assert done.exit_code == 0, done.output


def stored(connection: psycopg.Connection, name: str) -> dict[str, Any]:
    """What the catalogue has of a dataset, but for what differs between two registrations of one table."""
    sql = (
        "select to_jsonb(d) - '{id,name,registered_at,registered_in}'::text[] as stored from dbdp.dataset as d "
        "where name = %s and dropped_at is null"
    )
    return connection.execute(sql, (name,)).fetchone()[0]


@pytest.mark.parametrize("case", STATED)
def test_every_interface_stores_the_same_registration(
    connection, database, register, source, server_url, tmp_path, case
):
    """Every interface stores the same, as the record states; the view shows the limits in units of ε and δ."""
    stated = {"features": FEATURES} | STATED[case]
    registration = Registration(name="n", source=source, **stated)
    interfaces: dict[str, Callable[[str], Any]] = {
        "sql": lambda name: register(
            source, name=name, **{"positive": None, "mode": "renyi", "epsilon": None} | stated
        ),
        "python": lambda name: database.register_dataset(name, source, **stated),
        "record": lambda name: database.register(replace(registration, name=name)),
        "command line": lambda name: by_command(name, source, stated, tmp_path, server_url),
    }
    rows = {}
    for interface, call in interfaces.items():
        name = f"{source} {interface}"
        call(name)
        rows[interface] = stored(connection, name)
        shown = next(row for row in database.datasets() if row["name"] == name)
        database.drop_dataset(name)
    row, budget = rows["sql"], registration.budget
    assert len(row) > 15
    assert all(each == row for each in rows.values()), rows
    assert row["declaration"] == json.loads(registration.declaration.to_json()) == shown["declaration"]
    assert [row[key] for key in OF_ROWS] == [stated.get(key) for key in OF_ROWS]
    limits = {"charge_limit": budget.charge_limit, "leak_limit": budget.leak_limit}
    of_budget = {"epsilon": budget.epsilon, "delta": budget.delta, "mode": budget.mode, "rdp_order": budget.order}
    assert (limits | of_budget).items() <= row.items()
    assert {key: of_budget[key] for key in ("epsilon", "delta", "mode")}.items() <= shown.items()
    assert (round(shown["charge_limit"] * CHARGE_UNITS), round(shown["leak_limit"] * LEAK_UNITS)) == tuple(
        limits.values()
    )
    assert shown["rows"] == stated.get("capacity", {"who": 7 * 3}.get(stated.get("unit"), 20))


def test_fields_are_the_parameters_of_sql_in_order(connection):
    """The fields are the parameters of the SQL function in order."""
    sql = "select proargnames from pg_proc where proname = 'register_dataset' and pronamespace = 'dbdp'::regnamespace"
    assert connection.execute(sql).fetchone()[0] == [each.name for each in fields(Registration)]


def test_keywords_are_the_fields_with_their_defaults():
    """The keywords of Python are the fields with their defaults."""
    parameters = inspect.signature(Database.register_dataset).parameters
    known = {each.name: each.default for each in fields(Registration)}
    keywords = {
        name: MISSING if each.default is inspect.Parameter.empty else each.default
        for name, each in parameters.items()
        if name != "self"
    }
    assert keywords == known


def test_a_registration_never_changes():
    with pytest.raises(FrozenInstanceError):
        SOUND.epsilon = 2.0  # type: ignore[misc]
    assert replace(SOUND, epsilon=2.0).budget == Budget.of(epsilon=2.0, delta=1e-6)
    assert SOUND.budget == Budget.of(epsilon=1.0, delta=1e-6)


UNSOUND: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": ""}, "dataset name '' has 0 characters; choose one with 1 to 63"),
    "a long name": ({"name": "x" * 64}, "has 64 characters; choose one with 1 to 63"),
    "a name of several lines": ({"name": "a\nb"}, "has characters that cannot be printed; choose a name without them"),
    "a name in red": ({"name": "red \x1b[31m"}, "has characters that cannot be printed"),
    "a name from right to left": ({"name": "\u202eback"}, "has characters that cannot be printed"),
    "features that are none": ({"features": {}}, "features is empty; declare at least one column"),
    "half a unit": ({"unit": "who"}, "max_rows is missing: the two belong together"),
    "rows of a unit": ({"unit": "who", "max_rows": 0}, "max_rows = 0 must be a whole number between 1 and 1000"),
    "two budgets": ({"rho": 1.0}, "epsilon = 1.0 and rho = 1.0 exclude each other in a budget"),
    "an order of another mode": ({"mode": "gaussian", "rdp_order": 9.5}, "rdp_order = 9.5 is only for mode 'renyi'"),
    "an order of 1": ({"rdp_order": 1.0}, "rdp_order = 1.0 must be above 1"),
    "an order that leaves nothing": ({"rdp_order": 2.0}, "choose another order than 2"),
    "a mode": ({"mode": "free"}, "mode 'free' is unknown; choose one of renyi, basic, gaussian, zcdp"),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_a_registration_checks_itself_without_a_database(case):
    change, message = UNSOUND[case]
    SOUND.check()
    replace(SOUND, name="x" * LONGEST_NAME).check()
    with pytest.raises(ValueError, match=message):
        replace(SOUND, **change).check()


# --- what wide numbers are made of, from public facts -----------------------------------------------------------

WIDE = {"gain": [0, 100_000], **{f"a{number}": [0, 10] for number in range(40)}}


def coded(rows: int, **stated: Any) -> dict[str, Any]:
    registration = replace(SOUND, **{"features": WIDE} | stated).coded(rows)
    assert registration.coded(rows) == registration
    return registration.declaration.features


def test_wide_numbers_get_a_scale_and_bins_if_rows_suffice():
    """Wide numbers of classes are put on a scale and in bins where there are rows for them."""
    binned = {"bounds": [0, 100_000], "scale": "asinh", "bins": 8}
    assert coded(49 * 200)["gain"] == binned
    assert coded(49 * 200 - 1)["gain"] == {"bounds": [0, 100_000], "scale": "asinh"}
    assert coded(49 * 200, positive=None, classes=["x", "y"])["gain"] == binned
    assert {name: stated for name, stated in coded(10**6).items() if name != "gain"} == {
        name: stated for name, stated in WIDE.items() if name != "gain"
    }


def test_default_bins_add_at_most_a_quarter():
    """Bins that nobody asked for add at most a quarter of the coordinates."""
    several = {"gain": [0, 100_000], "loss": [-1, 100_000], **{f"a{number}": [0, 10] for number in range(40)}}
    assert coded(10**9, features=several)["loss"] == {"bounds": [-1, 100_000], "scale": "asinh"}
    assert coded(10**9, features={"gain": [0, 100_000]})["gain"] == {"bounds": [0, 100_000], "scale": "asinh"}


def test_stated_numbers_and_regressions_stay_as_they_are():
    """What is stated of a number stays and so do numbers for regression."""
    assert coded(10**9, features=WIDE | {"gain": {"bounds": [0, 100_000]}})["gain"] == [0, 100_000]
    stated = {"bounds": [0, 100_000], "bins": 3}
    assert coded(10**9, features=WIDE | {"gain": stated})["gain"] == stated
    assert coded(10**9, positive=None, label_bounds=[0, 1])["gain"] == [0, 100_000]
    array = {"x": {"length": 3, "norm": 100_000}}
    assert coded(10**9, features=array) == array


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"bounds": [0, 1], "bins": 1}, r"bins of 'a' = 1 must be a whole number between 2 and 1000"),
        ({"bounds": [0, 1], "bins": 1001}, r"bins of 'a' = 1001 must be a whole number between 2 and 1000"),
        ({"bounds": [0, 1], "bins": True}, r"bins of 'a' = True must be a whole number"),
        ({"bounds": [0, 1], "bins": 2.5}, r"bins of 'a' = 2.5 must be a whole number"),
        ({"bounds": [0, 1], "bins": None}, r"bins of 'a' = None must be a whole number"),
        ({"bounds": [0, 1], "scale": "log"}, r"scale of 'a' is 'log'; it must be one of linear, asinh"),
        ({"bounds": [0, 1], "scale": ["asinh"]}, r"scale of 'a' is \['asinh'\]; it must be one of"),
        ({"bounds": [1, 0]}, r"bounds of 'a' are \[1, 0\]; they must be finite and increasing"),
        ({"bounds": ["u", "v"], "bins": 2}, r"bounds of 'a' are \['u', 'v'\]; give \[lower, upper\]"),
        ({"bounds": 3}, r"bounds of 'a' are 3; give \[lower, upper\]"),
        ({"bounds": [0, 1], "edges": [0.5]}, r"feature 'a' has \['edges'\]; a number has"),
    ],
)
def test_bins_and_scales_that_are_none_are_refused(stated, message):
    with pytest.raises(ValueError, match=message):
        replace(SOUND, features={"a": stated}).check()
