"""DataFrames of Spark at hand: frozen, trained on, warned of and counted as other rows at hand, and deleted."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest

import dbdp
from dbdp.controller import ChargedError
from dbdp.interfaces.python import loading
from dbdp.interfaces.python.declaring import PrivacyLeakWarning
from dbdp.interfaces.python.estimators import freezing
from dbdp.interfaces.python.estimators.linear import LinearSVC, LogisticRegression, Ridge
from dbdp.interfaces.python.estimators.odometer import SpendingLimit
from dbdp.packing.spark.packed import SparkRows

ROWS = 3000
BOUNDS: dict[str, Any] = {"a": [-3, 3], "b": [-3, 3], "c": ["x", "y", "ü"]}
PRIVACY: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-7, "progress": False}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    random = np.random.default_rng(4)
    made = pd.DataFrame(random.normal(size=(ROWS, 2)), columns=["a", "b"])
    made["c"] = random.choice(["x", "y", "ü"], ROWS)
    made["number"] = (2 * made["a"] - made["b"] + random.normal(size=ROWS) / 4).clip(-9, 9)
    made["y"] = made["number"] > 0
    made["three"] = np.digitize(made["number"], [-1, 1]).astype(str)
    return made


@pytest.fixture
def frame(
    spark: Any, rows: pd.DataFrame, server_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    """The rows in Spark; the private server is that of the tests, and their own scratch folder is empty at the end."""
    monkeypatch.setattr(loading, "embedded", lambda: server_url)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield spark.createDataFrame(rows)
    assert not list(tmp_path.glob("dbdp-*/*"))


def left(connection: psycopg.Connection) -> list[Any]:
    sql = "select relname from pg_class where relname ~ '^dbdp_rows_' and relkind = 'r'"
    open_datasets = "select name from dbdp.dataset where name ~ '^dbdp_rows_' and dropped_at is null"
    return connection.execute(sql).fetchall() + connection.execute(open_datasets).fetchall()


def test_a_frame_is_learned_from_counted_and_deleted(
    frame: Any, rows: pd.DataFrame, connection: psycopg.Connection
) -> None:
    features = frame.select("a", "b", "c", "y")
    spent = {tuple(each["columns"]): each["fits"] for each in dbdp.spending()}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        fitted = LogisticRegression(bounds=BOUNDS, classes=[False, True], **PRIVACY).fit(features, "y")
    assert fitted.score(rows[["a", "b", "c"]], rows["y"]) > 0.85
    assert fitted.classes_.tolist() == [False, True]
    now = {tuple(each["columns"]): each["fits"] for each in dbdp.spending()}
    assert now["a", "b", "c"] == spent.get(("a", "b", "c"), 0) + 1
    assert not left(connection)


def test_reading_facts_from_rows_warns_and_is_right(frame: Any, rows: pd.DataFrame) -> None:
    """What is read from the rows is warned of and is what the rows have."""
    with pytest.warns(PrivacyLeakWarning, match=r"classes of y, bounds of 'a', bounds of 'b', categories of 'c'"):
        fitted = LinearSVC(**PRIVACY).fit(frame.select("a", "b", "c", "three"), "three")
    assert fitted.classes_.tolist() == ["0", "1", "2"]
    (a, b), (c,) = fitted.declaration_.numeric, fitted.declaration_.categorical
    assert [(a.lower, a.upper), (b.lower, b.upper)] == [(rows[n].min(), rows[n].max()) for n in ("a", "b")]
    assert c.categories == ("x", "y", "ü")
    assert fitted.score(rows[["a", "b", "c"]], rows["three"]) > 0.5


def test_numbers_and_a_norm_are_learned_too(frame: Any, rows: pd.DataFrame) -> None:
    fitted = Ridge(bounds=4.0, label_bounds=[-9, 9], **PRIVACY).fit(frame.select("a", "b", "number"), "number")
    assert fitted.score(rows[["a", "b"]], rows["number"]) > 0.8


def test_a_limit_refuses_before_a_row_is_packed(
    frame: Any, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkRows, "blocks", lambda *_: pytest.fail("rows were packed"))
    estimator = LogisticRegression(bounds=BOUNDS, classes=[False, True], **PRIVACY)
    with SpendingLimit(epsilon=1, delta=1e-6), pytest.raises(ValueError, match="would exceed the SpendingLimit"):
        estimator.fit(frame.select("a", "b", "c", "y"), "y")
    assert not left(connection)


def test_an_error_after_the_charge_leaves_no_file_and_no_dataset(
    frame: Any, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("as a cluster may")

    monkeypatch.setattr(SparkRows, "blocks", fails)
    with pytest.raises(ChargedError):
        LogisticRegression(bounds=BOUNDS, classes=[False, True], **PRIVACY).fit(frame.select("a", "b", "c", "y"), "y")
    assert not left(connection)


def test_the_next_call_deletes_what_a_killed_process_left(frame: Any, tmp_path: Path) -> None:
    folder = tmp_path / f"dbdp-{os.getuid()}"
    abandoned, other = folder / f"dbdp_rows_{'0' * 16}", folder / "mine"
    for each in (abandoned, other):
        each.mkdir(parents=True)
        (each / "part.parquet").touch()
    folder.chmod(0o700)
    LogisticRegression(bounds=BOUNDS, classes=[False, True], **PRIVACY).fit(frame.select("a", "b", "c", "y"), "y")
    assert [each.name for each in folder.iterdir()] == ["mine"]
    (other / "part.parquet").unlink()
    other.rmdir()


REFUSED = {
    "no label": (["a", "y"], None, "is not a column"),
    "another label": (["a", "y"], "label", "is not a column"),
    "only a label": (["y"], "y", "no column besides"),
    "an array": (["a", "array(a) as x", "y"], "y", "cast it to double or string"),
    "a type that is none": (["a", "interval '1' day as i", "y"], "y", "cast it to double or string"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_cannot_be_trained_on_is_refused(which: str, frame: Any) -> None:
    columns, label, text = REFUSED[which]
    with pytest.raises(ValueError, match=text):
        LogisticRegression(**PRIVACY).fit(frame.selectExpr(*columns), label)


def test_a_folder_that_others_may_read_is_refused(frame: Any, tmp_path: Path) -> None:
    folder = tmp_path / f"dbdp-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(ValueError, match="others may read it"):
        LogisticRegression(bounds=BOUNDS, classes=[False, True], **PRIVACY).fit(frame.select("a", "b", "c", "y"), "y")
    folder.rmdir()


def test_elsewhere_than_here_a_scratch_folder_must_be_named(
    frame: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        def get(self, name: str, default: Any = None) -> Any:
            return {"spark.master": "spark://host:7077"}.get(name, default)

    class Session:
        conf = Elsewhere()

    with pytest.raises(ValueError, match=r"set spark.dbdp.scratch"):
        freezing._Scratch.of(Session())
    with pytest.raises(ValueError, match="cannot be opened from here"):
        monkeypatch.setattr(Elsewhere, "get", lambda *_: "nothing://here")
        freezing._Scratch.of(Session())
