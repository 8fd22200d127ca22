"""The papers' experiments: every figure has a row, cells are resumed, and figures are made from measured values."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pytest

from benchmarks.accuracy.datasets import Data
from benchmarks.reproduce import (
    __main__,
    catalogue,
    database,
    figures,
    formulas,
    page,
    papers,
    pictures,
    published,
    report,
    summaries,
    tasks,
    traces,
    tuning,
    values,
)
from benchmarks.reproduce.cells import Cell, Result, Store, measured
from benchmarks.reproduce.figures import EPSILON, ROWS, Figure, Panel, Series
from benchmarks.reproduce.methods import Laboratory
from dbdp.algorithms import Facts, Request, plan

TINY = "synthetic:rows=600:features=3"
EVERY = {**catalogue.BY_NAME, **traces.TRACES_BY_NAME, **formulas.FORMULAS_BY_NAME}
LINES = (Series("dbdp (default)", "dbdp:auto"), Series("bolt-on", "dbdp:bolt_on"), *catalogue.ENDS)
PANEL = Panel("tiny", TINY, EPSILON, (0.5, 1, 5), LINES, small=(1, 5))
FIGURE = Figure("tiny", "A tiny figure", "Of 600 rows.", (PANEL,), repeats=4)
CELL = Cell(TINY, "logistic", "dbdp:auto", 1.0, 1e-6)


# --- the papers -------------------------------------------------------------------------------------------------


def test_every_figure_and_table_of_every_paper_has_one_row():
    rows = [(row.paper, row.item) for row in papers.ROWS]
    assert sorted(rows) == sorted((paper, item) for paper, items in papers.ITEMS.items() for item in items)
    assert len(papers.ITEMS) == 5


def test_every_row_names_measured_figures_and_the_papers():
    for row in papers.ROWS:
        assert row.says and row.differs and row.shows
        assert set(row.figures) <= EVERY.keys(), row.item


def test_every_figure_is_in_the_row_of_a_paper_or_is_dbdps_own():
    named = {name for row in papers.ROWS for name in row.figures}
    assert EVERY.keys() - named == {"systems", "algorithms", "formula-gaussian"}


def test_the_default_of_dbdp_is_in_every_picture_of_accuracy():
    for figure in catalogue.FIGURES:
        for panel in figure.panels:
            if panel.metric in ("accuracy", "objective", "rmse"):
                assert any(series.method == figures.AUTO for series in panel.shown(False)), panel.title


def test_every_picture_has_what_dbdp_uses():
    for formula in formulas.FORMULAS:
        assert all(any(line["ours"] for line in panel["lines"]) for panel in formula.panels()), formula.name
    for trace in traces.TRACES:
        defaults = [cell for cell in trace.cells() if cell.method == figures.AUTO]
        assert {cell.epsilon for cell in defaults} == {
            cell.epsilon for cell in trace.watched if cell.dataset == "adult"
        }
        shown = traces.accuracies([Result(cell, 1.0, {"accuracy": 0.8}) for cell in defaults])
        assert [line["ours"] for line in shown["lines"]] == [True] * len(defaults)


def test_series_of_a_panel_have_different_labels_and_trainings():
    for figure in catalogue.FIGURES:
        for panel in figure.panels:
            assert len({series.label for series in panel.series}) == len(panel.series), panel.title
        titles = [panel.title for panel in figure.panels]
        assert len(set(titles)) == len(titles), figure.name


# --- cells ------------------------------------------------------------------------------------------------------


def test_figures_share_their_trainings():
    names = ("dp_agd-logistic", "rsgd_ar-logistic")
    one, other = (set(catalogue.BY_NAME[name].cells(False, 0)) for name in names)
    assert one & other
    both = figures.planned([catalogue.BY_NAME[name] for name in names], False, 1, 3)
    assert len(both) == len(set(both)) == len(one | other)


def test_all_figures_come_once_before_any_comes_again():
    repeats = [cell.repeat for cell in figures.planned(catalogue.FIGURES, False, None, 2)]
    assert repeats == sorted(repeats) and set(repeats) == {0, 1}
    assert len(figures.planned([FIGURE], True, None, 2)) == 4 * (2 * 3 + 2)
    assert len(figures.planned([FIGURE], False, 1, 2)) == 2 * 2 + 2


def test_an_axis_is_epsilon_rows_an_option_or_a_setting():
    line, fixed = LINES[1], replace(LINES[1], fixed=True)
    assert replace(PANEL, axis=ROWS, dataset="kdd").cell(line, 500, 0, True).dataset == "kdd:rows=500"
    assert json.loads(replace(PANEL, axis="epochs").cell(line, 5.0, 0, True).options) == {"epochs": 5}
    assert json.loads(replace(PANEL, axis="epochs").cell(fixed, 5.0, 0, True).options) == {}
    cell = replace(PANEL, axis="settings.growth").cell(line, 0.3, 0, True)
    assert json.loads(cell.options) == {"settings": {"growth": 0.3}}


def test_a_run_goes_on_with_what_is_missing_and_with_what_failed(tmp_path):
    store, cells = Store(tmp_path), [replace(CELL, repeat=repeat) for repeat in range(4)]
    store.write(Result(cells[0], 1.0, {"accuracy": 0.5}))
    store.write(Result(cells[1], 1.0, {}, "MemoryError: "))
    store.write(Result(cells[2], 1.0, {"accuracy": 0.5}))
    (tmp_path / cells[2].file).write_text('{"cell": {"data')  # as if it had been cut off
    assert store.remaining(cells) == cells[1:]
    assert store.failed(cells) == [Result(cells[1], 1.0, {}, "MemoryError: ")]
    store.write(Result(cells[1], 1.0, {"accuracy": 0.6}))
    assert [result.figures["accuracy"] for result in store.done(cells)] == [0.5, 0.6]
    assert len({cell.file for cell in cells}) == 4


def test_a_failure_is_a_result():
    failed = measured(CELL, lambda cell: {"accuracy": 1 / 0})
    assert failed.error.startswith("ZeroDivisionError") and failed.load >= 0


def test_a_run_ends_when_its_time_is_over_and_goes_on_afterwards(tmp_path):
    class Counting:
        def measure(self, cell):
            return {"accuracy": 0.5}

    cells = [replace(CELL, repeat=repeat) for repeat in range(3)]
    __main__.run(Counting(), Store(tmp_path), cells, until=0.0)
    assert Store(tmp_path).remaining(cells) == cells
    __main__.run(Counting(), Store(tmp_path), cells, until=None)
    assert Store(tmp_path).remaining(cells) == []


# --- what is measured -------------------------------------------------------------------------------------------


def test_a_task_has_rows_of_norm_one_and_one_split():
    task = tasks.task_of(TINY, 1)
    assert np.allclose(np.linalg.norm(task.train, axis=1), 1)
    assert (len(task.train), len(task.test)) == (480, 120)
    tasks.task_of.cache_clear()
    assert np.array_equal(task.test, tasks.task_of(TINY, 1).test)
    assert not np.array_equal(task.test, tasks.task_of(TINY, 2).test)
    with pytest.raises(ValueError, match="no table 'adlut': use adult, bank"):
        tasks.task_of("adlut", 0)


def test_bounds_read_from_rows_leave_out_what_never_varies():
    rows = pd.DataFrame({"size": [1, 5, 3], "kind": ["b", "a", "b"], "same": [0, 0, 0], "y": ["1", "0", "1"]})
    assert tasks.described(rows, "y") == {"size": [1.0, 5.0], "kind": ["a", "b"]}


@pytest.mark.parametrize("loss", ["logistic", "huber_svm"])
def test_the_excess_is_above_that_of_the_minimiser(loss):
    task = tasks.task_of(TINY, 0)
    best = values.least(task, loss)
    assert values.measured_model(task, loss, best[None])["excess"] == pytest.approx(0, abs=1e-9)
    assert values.measured_model(task, loss, best[None] + 0.3)["excess"] > 1e-3
    assert values.measured_model(task, loss, -best[None])["accuracy"] < 0.5
    stronger = values.least(task, loss, 0.1)
    assert values.measured_model(task, loss, stronger[None], 0.1)["excess"] == pytest.approx(0, abs=1e-9)
    assert values.measured_model(task, loss, best[None], 0.1)["excess"] > 1e-3


def test_numbers_are_measured_in_the_units_of_their_bounds():
    random = np.random.default_rng(1)
    rows = pd.DataFrame({"a": random.uniform(0, 10, 300)}).assign(y=lambda each: each["a"])
    data = Data("line", "y", {"label_bounds": [0, 10]}, {"a": [0, 10]}, rows)
    split = tasks.Split(data, np.arange(200), np.arange(200, 300))
    features = np.column_stack([rows["a"] / 5 - 1, np.ones(300)]) / np.sqrt(2)
    labels = rows["y"].to_numpy() / 5 - 1
    task = tasks.Task("line", split, features[:200], labels[:200], features[200:], labels[200:])
    assert values.measured_model(task, "squared", np.array([[np.sqrt(2), 0]]))["rmse"] == pytest.approx(0)
    zero = values.measured_model(task, "squared", np.zeros((1, 2)))["rmse"]
    assert zero == pytest.approx(np.sqrt(np.mean((rows["y"][200:] - 5) ** 2)))


def test_published_noise_is_for_a_fiftieth_of_the_sensitivity():
    lines = formulas.bolt_on()[0]["lines"]
    by_size = dict(zip(lines[0]["x"], np.array(lines[1]["y"]) / lines[0]["y"], strict=True))
    assert by_size[50] == pytest.approx(50, rel=0.01) and by_size[1] == pytest.approx(1, rel=0.01)
    assert lines[0]["unsound"] and not lines[1]["unsound"]


def test_the_published_algorithm_learns_where_its_noise_is_small():
    task = tasks.task_of(TINY, 0)
    for delta in (0.0, 1e-6):
        model = published.bolt_on_as_published(task.train, task.train_labels, 1e6, delta)
        assert values.measured_model(task, "logistic", model[None])["accuracy"] > 0.8


@pytest.mark.parametrize(
    "method",
    [
        "dbdp:auto",
        "dbdp:bolt_on",
        "tune:bolt_on",
        "tune:scs13",
        "no-privacy",
        "constant",
        "published_bolt_on",
        "columns",
    ],
)
def test_every_kind_of_method_is_measured_through_the_database(backend, method):
    laboratory = Laboratory(backend())
    options = json.dumps({"candidates": [{"epochs": 5}, {"epochs": 10}]} if method.startswith("tune:") else {})
    found = laboratory.measure(replace(CELL, method=method, epsilon=1e4, options=options))
    assert (found["accuracy"] > 0.8) == (method != "constant")
    laboratory.close()
    assert backend().execute("select to_regclass('reproduce_train')").fetchone() == (None,)


def test_the_time_of_jax_privacy_includes_pulling_the_rows(backend):
    """The time of jax privacy has the pull of the rows and its own options."""
    pytest.importorskip("jax_privacy")
    laboratory = Laboratory(backend())
    for options in ("{}", '{"batch_size": 50, "epochs": 2}'):
        found = laboratory.measure(replace(CELL, method="pulled:jax_privacy", epsilon=1e4, options=options))
        assert found["accuracy"] > 0.8 and found["training_seconds"] > 0
    laboratory.close()


def test_portions_are_disjoint_and_hold_every_row():
    task = tasks.task_of(TINY, 0)
    parts = list(tuning.portions(task, 7))
    assert [len(each.train) for each in parts] == [69] * 4 + [68] * 3
    assert np.array_equal(np.sort(np.concatenate([each.train for each in parts]), axis=0), np.sort(task.train, axis=0))


def test_every_planned_training_of_the_database_can_be_planned():
    """A small run has no cell that fails: as the projections and the tunings did, for want of an option."""
    planned = figures.planned([*catalogue.FIGURES], False, 1, 1)
    own = {cell for cell in planned if cell.method.startswith("dbdp:") and "network" not in cell.options}
    for cell in {replace(each, epsilon=1.0, delta=min(each.delta, 1e-8)) for each in own}:
        request = database.request_of(cell, database.OWN)
        several = cell.dataset.startswith("mnist")
        facts = Facts(8000, 200, 10 if several else 1, request.loss in ("logistic", "huber_svm"), intercept=False)
        assert plan(request, facts).guarantee.epsilon == 1


def test_a_second_run_in_one_database_is_refused(server_url, monkeypatch, tmp_path, capsys):
    """Two runs in one database would drop each others tables and the second is refused."""
    monkeypatch.setattr(__main__.server, "connect", lambda: psycopg.connect(server_url, autocommit=True))
    monkeypatch.setattr(__main__, "run", lambda *_: None)
    options = __main__.arguments(["--folder", str(tmp_path)])
    with psycopg.connect(server_url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(hashtext('reproduce'))")
        assert __main__.measure(options, [FIGURE]) == 2
        assert "Another run uses this database" in capsys.readouterr().out
    assert __main__.measure(options, [FIGURE]) == 0


def test_a_dataset_has_a_budget_for_one_training(backend):
    """With one for many, samples of ten rows would be padded to all rows, and take as many times longer."""
    arrays = database.ArrayDatabase(backend())
    arrays.place(replace(CELL, epsilon=0.5))
    assert arrays.database.budget(arrays.name)["epsilon"] == 1
    request = Request(0.5, 1e-6, algorithm="dp_sgd", batch_size=10)
    assert arrays.database.explain(arrays.name, request)["padded_size"] < 100
    arrays.close()


def test_an_unknown_method_is_refused(backend):
    with pytest.raises(ValueError, match="no method 'magic'"):
        Laboratory(backend()).measure(replace(CELL, method="magic"))


@pytest.mark.parametrize("algorithm", ["dp_agd", "dp_blsgd"])
def test_a_watched_run_has_its_steps_its_noise_and_its_counts(backend, algorithm):
    laboratory = Laboratory(backend())
    found = laboratory.measure(replace(CELL, method=f"watched:{algorithm}", epsilon=100.0))
    laboratory.close()
    assert found["gradients"] == len(found["noise"]) == len(found["objective"]) == len(found["gradient"])
    assert found["searches"] >= len(found["steps"]) > 0
    assert found["spent"] == sorted(found["spent"]) and 0 < found["spent"][0] < found["spent"][-1] <= 1.0001
    assert len(found["spent"]) == found["gradients"] + found["searches"]
    assert len(found["test_accuracy"]) == len(found["objective"]) and max(found["test_accuracy"]) > 0.8
    assert min(found["objective"]) < found["objective"][0] == pytest.approx(np.log(2))


# --- pictures and page ------------------------------------------------------------------------------------------


def stored(folder: Path) -> Store:
    """Results of the tiny figure: two repeats, and of one point none."""
    store = Store(folder / "results")
    for repeat in (0, 1):
        for cell in FIGURE.cells(False, repeat):
            if (cell.method, cell.epsilon) != ("dbdp:bolt_on", 5):
                accuracy = 0.7 + 0.1 * repeat + 0.01 * (cell.epsilon or 0)
                store.write(Result(cell, 1.0, {"accuracy": accuracy, "training_seconds": 0.5}, load=1.5))
    return store


def test_points_are_means_of_what_there_is_with_their_spread(tmp_path):
    found, _ = report.results_of(stored(tmp_path), FIGURE, False)
    points = summaries.points(FIGURE, {each.cell: each for each in found}, False, 30)
    shown = {(point.series.label, point.value): point for point in points}
    first = shown["dbdp (default)", 1]
    assert (first.mean, first.repeats) == (pytest.approx(0.76), 2)
    assert first.deviation == pytest.approx(np.std([0.71, 0.81], ddof=1))
    assert ("bolt-on", 5) not in shown and ("without privacy", 5) in shown


def test_the_page_has_the_picture_numbers_and_command(tmp_path, monkeypatch):
    """The page has the picture the numbers the command and nothing from elsewhere."""
    stored(tmp_path).write(Result(next(FIGURE.cells(False, 1)), 1.0, {}, "ValueError: <b>no</b>"))
    monkeypatch.setattr(report, "FIGURES", (FIGURE,))
    report.write(tmp_path, ["tiny", "formula-bolt_on"], full=False)
    text = (tmp_path / "index.html").read_text()
    assert "dbdp (default)" in text and FIGURE.command.replace('"', "&quot;") in text and "Repeats: 1 to 2." in text
    assert text.count("data:image/png;base64,") == 2 and not re.search(r"(src|href)=\"(?!data:|#)", text)
    assert "<b>no</b>" not in text and "λ = 0.001, at 50: as published: 2L/(λmb) (unsound) 0.00102, true" in text
    assert page.gist(
        report.section_of(tmp_path, FIGURE, report.results_of(stored(tmp_path), FIGURE, False)[0], False, redraw=False)[
            0
        ]
    ).startswith("tiny, ε = 5: dbdp (default) 0.800, without privacy")
    for row in papers.ROWS:
        assert page.text(row.item) in text and page.text(row.differs) in text
    for name in ("tiny", "formula-bolt_on"):
        assert [(tmp_path / f"{name}.{kind}").stat().st_size > 100 for kind in ("png", "svg", "csv")] == [True] * 3
    assert "| dbdp (default) | 0.710 | 0.800 ± 0.0707 |" in (tmp_path / "tables.md").read_text()
    lines = (tmp_path / "tiny.csv").read_text().splitlines()
    assert lines[0].startswith("panel,dataset,loss,metric,series,method") and len(lines) == 1 + 3 + 4


def test_a_picture_is_drawn_of_a_single_point(tmp_path):
    """A picture is drawn of a single point and of errors above the least."""
    result = Result(CELL, 1.0, {"accuracy": 0.5, "excess": 0.1})
    none = Result(CELL, 1.0, {"accuracy": 0.5, "excess": 0.0})
    for metric, least in (("accuracy", none), ("excess", none), ("excess", result)):
        panel = replace(PANEL, metric=metric)
        points = summaries.of_results(panel, LINES[0], 1.0, [result]) + summaries.of_results(
            panel, LINES[2], 1, [least]
        )
        assert all(path.stat().st_size > 1000 for path in pictures.draw(points, tmp_path / metric))


def test_a_legend_names_what_is_in_no_panel():
    figure, axes = pictures.figure_of(1)
    far = Series("diffprivlib", "peer:diffprivlib")
    points = [
        *summaries.of_results(replace(PANEL, metric="rmse"), LINES[0], 1.0, [Result(CELL, 1.0, {"rmse": 0.7})]),
        *summaries.of_results(replace(PANEL, metric="rmse"), LINES[3], 1.0, [Result(CELL, 1.0, {"rmse": 0.9})]),
        *summaries.of_results(replace(PANEL, metric="rmse"), far, 1.0, [Result(CELL, 1.0, {"rmse": 50})]),
    ]
    pictures.draw_panel(axes[0], points, [point.series.label for point in points])
    assert pictures.outside(axes) == {"diffprivlib"} and figure is axes[0].figure


@pytest.mark.parametrize(
    ("low", "high", "shown"), [(0.03, 3, "0.05 0.1 0.2 0.5 1 2"), (2e-6, 30, "1e-05 0.0001 0.001 0.01 0.1 1 10")]
)
def test_axes_of_powers_have_plain_numbers(low, high, shown):
    figure, (axis,) = pictures.figure_of(1)
    axis.set_ylim(low, high)
    pictures.by_powers(axis)
    figure.canvas.draw()
    texts = [
        label.get_text()
        for value, label in zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
        if low < value < high
    ]
    assert " ".join(texts) == shown


def test_pictures_of_the_named_figures_are_copied(tmp_path):
    images = tmp_path / "images"
    given = ["--figure", "formula-gaussian", "--page-only", "--folder", str(tmp_path), "--images", str(images)]
    assert __main__.main(given) == 0
    assert [path.name for path in images.iterdir()] == ["formula-gaussian.png"]


def test_every_picture_of_the_summary_has_its_command():
    """Every picture of the summary is small and has the command that makes it."""
    docs = Path(__main__.__file__).parents[2] / "docs"
    text = (docs / "experiments.md").read_text(encoding="utf-8")
    shown = re.findall(r"\]\(images/(.+?)\.png\)", text)
    assert len(shown) == len(set(shown)) == 12 and set(shown) <= EVERY.keys()
    for name in shown:
        assert (docs / "images" / f"{name}.png").stat().st_size <= 70_000, name
        assert re.search(f'make reproduce ARGS="--figure {name} [^"\n]*--images docs/images"', text), name


def test_figures_are_listed_and_an_unknown_one_is_refused(capsys):
    assert __main__.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in EVERY)
    assert __main__.main(["--figure", "magic"]) == 2
    assert "There is no figure magic" in capsys.readouterr().out
