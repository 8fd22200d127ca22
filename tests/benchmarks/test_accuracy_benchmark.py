"""The accuracy benchmark: the same rows for all systems, results that survive an interruption, and sound peers."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from benchmarks import regret
from benchmarks.accuracy import ada_ssp, cells, dp_sgd, encoding, generated, jax_dp_sgd, methods, report, scores
from benchmarks.accuracy.cells import Cell, Result
from benchmarks.accuracy.datasets import Data, Split, load
from benchmarks.accuracy.in_database import InDatabase
from benchmarks.accuracy.scores import Prediction
from dbdp.privacy.accounting.calibration import analytic_noise_multiplier

SMALL = "generated:rows=500:features=3:noise=0"
MIXED = {"kind": ["a", "b"], "size": [0, 10], "side": [-1, 1]}


def table(label, declared, values):
    """A table of 400 rows with both kinds of columns, whose label is read from `size`."""
    random = np.random.default_rng(7)
    rows = pd.DataFrame({
        "kind": random.choice(["a", "b"], 400),
        "size": random.uniform(-1, 12, 400),
        "side": random.uniform(-1, 1, 400),
    })  # fmt: skip
    return Data("mixed", label, declared, MIXED, rows.assign(**{label: values(rows)}), (1.0,), 1e-6)


def regression():
    return table("amount", {"label_bounds": [0, 10]}, lambda rows: rows["size"].clip(0, 10))


def split_of(data):
    places = np.arange(len(data.rows))
    return Split(data, places[80:], places[:80])


def result(method="dbdp", epsilon=1.0, split=0, error="", **figures):
    return Result(Cell("wine", method, epsilon, split), 2.0, figures, error)


def test_a_split_covers_the_rows_once_in_every_run():
    split = Split.of(SMALL, 3)
    Split.of.cache_clear()
    again, other = Split.of(SMALL, 3), Split.of(SMALL, 4)
    assert sorted([*split.train, *split.test]) == list(range(500))
    assert len(split.test) == 100
    assert np.array_equal(split.test, again.test)
    assert not np.array_equal(split.test, other.test)


def test_a_generated_table_is_public_and_as_declared():
    family = generated.Family.parse("rows=2000:features=5:share=.1:density=.2:tails=1")
    columns, labels = family.draw()
    assert np.array_equal(columns, family.draw()[0])
    assert labels.mean() == pytest.approx(0.1, abs=1e-3)
    assert abs(columns).max() <= family.bound
    assert (columns != 0).mean() == pytest.approx(0.2, abs=0.05)


def test_an_unknown_setting_or_table_is_refused_by_name():
    with pytest.raises(ValueError, match="has no colour: use rows, features"):
        generated.Family.parse("colour=1")
    with pytest.raises(ValueError, match="no table 'adlut': use adult, bank"):
        load("adlut")
    with pytest.raises(ValueError, match="no method DP-GBM: use DP-EBM"):
        methods.chosen(methods.PEERS, ["DP-GBM"])


def test_rows_of_peers_have_the_norms_that_their_noise_is_for():
    data = regression()
    assert np.allclose(np.linalg.norm(encoding.unit(data), axis=1), 1)
    norms = np.linalg.norm(encoding.bounded(data), axis=1)
    assert 0.8 < norms.max() <= 1
    assert list(encoding.scaled(data).min(axis=0)) == [0, 0, 0, pytest.approx(0, abs=0.02), 1]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    path = tmp_path / "results.jsonl"
    cells.append(path, result(split=0, rmse=1.0))
    cells.append(path, result(split=1, rmse=2.0))
    path.write_text(path.read_text()[:-9])
    assert cells.read(path) == [result(split=0, rmse=1.0)]
    cells.append(path, result(split=2, rmse=3.0))
    assert cells.read(path) == [result(split=0, rmse=1.0), result(split=2, rmse=3.0)]


def test_a_run_goes_on_with_what_is_missing_and_with_what_failed():
    planned = cells.planned([SMALL], methods.REFERENCES, 2)
    assert [(cell.method, cell.split) for cell in planned] == [
        (name, split) for split in (0, 1) for name in ("no-privacy", "constant")
    ]
    done = [Result(planned[0], 1.0, {"accuracy": 0.5}), Result(planned[1], 1.0, {}, "MemoryError: ")]
    assert cells.remaining(planned, done) == planned[1:]
    assert cells.remaining(planned, []) == planned


def test_the_time_left_counts_each_method_by_its_own_median():
    results = [result(), result("DP-EBM"), result("DP-EBM")]
    slow = [Result(Cell("bike", "DP-EBM", 1.0, 0), 50.0)]
    left = [Cell("wine", "dbdp", 1.0, 5), Cell("bike", "DP-EBM", 1.0, 5), Cell("new", "dbdp", 1.0, 5)]
    assert cells.seconds_left(left, results + slow) == 2 + 50 + 2


def test_a_failure_of_one_method_is_reported():
    failing = methods.Method("failing", lambda split, epsilon: 1 / 0, ("binary",), "none")
    failed = cells.measured(Cell(SMALL, "failing", 1.0, 0), [failing])
    assert failed.error.startswith("ZeroDivisionError")
    mended = Result(failed.cell, 1.0, {"accuracy": 1.0})
    assert report.unfinished([failed]) == [failed]
    assert report.unfinished([failed, mended]) == []


def test_the_table_has_means_and_standard_errors():
    results = [result(split=split, rmse=value) for split, value in enumerate([1.0, 2.0, 3.0])]
    results += [result("constant", None, rmse=4.0), result("AdaSSP", rmse=2.5)]
    lines = report.markdown(results, methods.PEERS).splitlines()
    assert "| **dbdp** | 2.000 ± 0.577 |" in lines
    assert "| constant | 4.000 |" in lines
    assert lines.index("| **dbdp** | 2.000 ± 0.577 |") < lines.index("| AdaSSP | 2.500 |")
    assert json.loads(json.dumps(report.as_json(results)))[1]["error"] is None


def test_a_picture_is_drawn_of_whatever_there_is(tmp_path):
    results = [result(epsilon=0.1, rmse=2.0), result(rmse=1.0), result("constant", None, rmse=3.0)]
    for part in (results, results[:1]):
        assert [path.stat().st_size > 1000 for path in report.draw(part, tmp_path)] == [True, True]


def test_each_metric_is_that_of_the_best_setting():
    split = split_of(table("y", {"positive": "1"}, lambda rows: (rows["size"] > 5).astype(int).astype(str)))
    truth = split.data.truth[split.test]
    exact = Prediction(truth, np.zeros(80))
    ranked = Prediction(1 - truth, truth.astype(float))
    assert scores.figures(split, [exact, ranked]) == {"accuracy": 1, "auc": 1}
    assert scores.figures(split, [exact]) == {"accuracy": 1, "auc": 0.5}


def test_probabilities_are_judged_by_loss_and_calibration():
    split = split_of(table("y", {"positive": "1"}, lambda rows: (rows["size"] > 5).astype(int).astype(str)))
    truth = split.data.truth[split.test]
    share = truth.mean()
    right = scores.figures(split, [Prediction(truth, None, np.full(80, share))])
    wrong = scores.figures(split, [Prediction(truth, None, np.full(80, share / 2))])
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert right["log_loss"] == pytest.approx(entropy)
    assert right["log_loss"] < wrong["log_loss"]
    assert right["calibration_error"] < 1e-9
    assert wrong["calibration_error"] > 0.1
    softmax = Prediction.by_log_odds(np.log(np.array([[0.2, 0.3, 0.5]])))
    assert softmax.probabilities == pytest.approx(np.array([[0.2, 0.3, 0.5]]))


def test_the_clipped_sum_attains_the_clip_at_most():
    random = np.random.default_rng(5)
    rows, residuals = random.normal(size=(9, 4)), random.normal(size=(9, 2))
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    for clip in (0.1, 100):
        longer = dp_sgd.clipped_sum(rows, norms, residuals, clip)
        moved = np.linalg.norm(longer - dp_sgd.clipped_sum(rows[1:], norms[1:], residuals[1:], clip))
        assert moved == pytest.approx(min(clip, norms[0, 0] * np.linalg.norm(residuals[0])))


@pytest.mark.parametrize(("epsilon", "updates"), [(0.1, 1), (1.6, 20)])
def test_the_noise_of_peers_is_that_of_the_exact_gaussian(epsilon, updates):
    exact = np.sqrt(updates) * analytic_noise_multiplier(epsilon, 1e-8)
    assert exact * 0.999 <= dp_sgd.added(epsilon, 1e-8, 1.0, updates) <= exact * 1.03
    assert dp_sgd.replaced(epsilon, 1e-8, 1.0, updates) == pytest.approx(2 * exact)


@pytest.mark.parametrize(("rate", "updates"), [(1.0, 20), (0.05, 200)])
def test_jax_privacys_noise_is_that_of_dbdps_guarantee(rate, updates):
    ours, theirs = (accountant(1.0, 1e-6, rate, updates) for accountant in (dp_sgd.replaced, jax_dp_sgd.replaced))
    assert theirs == pytest.approx(ours, rel=0.01)


@pytest.mark.parametrize(("task", "columns"), [("binary", 1), ("classes", 3), ("regression", 1)])
def test_jax_privacy_without_noise_makes_the_textbooks_updates(task, columns):
    pytest.importorskip("jax_privacy")
    random = np.random.default_rng(9)
    rows = random.normal(size=(200, 5))
    labels = np.eye(3)[random.integers(0, 3, 200)][:, :columns]
    for clip in (0.2, 5.0):  # of which the first shortens nearly every gradient
        setting = dp_sgd.Setting(1.0, 5, 2.0, clip)
        ours, theirs = (trained(rows, labels, setting, 0.0, task) for trained in (dp_sgd.train, jax_dp_sgd.train))
        assert np.allclose(ours, theirs, atol=1e-5) and np.abs(ours).max() > 0.01


def test_an_empty_sample_of_jax_privacy_adds_noise_only():
    pytest.importorskip("jax_privacy")
    setting = dp_sgd.Setting(1e-12, 3, 1.0, 0.5)  # a row is drawn with a probability of 6e-12
    assert not jax_dp_sgd.train(np.ones((2, 3)), np.ones((2, 1)), setting, 0.0, "binary").any()


def test_jax_privacy_adds_its_multipliers_noise():
    pytest.importorskip("jax_privacy")
    setting = dp_sgd.Setting(0.5, 3, 1.0, 0.5)
    weights = jax_dp_sgd.train(np.zeros((40, 4000)), np.zeros((40, 1)), setting, 7.0, "binary")
    deviation = np.sqrt(3) * 7.0 * 0.5 / (0.5 * 0.5 * 40)  # updates, multiplier and clip, by the length of a step
    low, high = chi2.ppf([5e-10, 1 - 5e-10], 4000)
    assert low < (weights**2).sum() / deviation**2 < high


def test_the_plan_of_jax_privacy_has_twice_the_noise():
    """For which it is assembled from its parts here; once this fails the plan itself can be the peer."""
    pytest.importorskip("jax_privacy")
    from dp_accounting import NeighboringRelation, pld
    from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

    accountant = pld.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    settings = {"iterations": 1, "strategy": np.ones(1), "epsilon": 1.0, "delta": 1e-6}
    noise = BandMFExecutionPlanConfig(**settings, accountant=accountant).plan.noise_addition_transform
    sums, _ = noise.update(np.zeros(4000, np.float32), noise.init(np.zeros(4000, np.float32)))
    needed = 2 * analytic_noise_multiplier(1.0, 1e-6)  # of a sum of gradients clipped to 1
    low, high = chi2.ppf([5e-10, 1 - 5e-10], 4000)
    assert 0.99 * low < (np.asarray(sums, float) ** 2).sum() / (2 * needed) ** 2 < 1.01 * high


class Silent:
    """A generator whose normal values are 0: what is left of a peer is its bias."""

    def normal(self, size=None):
        return np.zeros(size) if size else 0.0


@pytest.mark.parametrize("peer", [ada_ssp.ada_ssp, ada_ssp.boosted, ada_ssp.tuned])
def test_a_peer_of_regression_is_noisy_least_squares(peer, monkeypatch):
    split = split_of(regression())
    monkeypatch.setattr(np.random, "default_rng", Silent)
    assert scores.figures(split, peer(split, 20.0))["rmse"] < 0.5
    assert scores.figures(split, peer(split, 1e-3))["rmse"] > 2  # the ridge grows as ε falls


@pytest.mark.parametrize("task", ["binary", "classes", "regression"])
def test_dbdp_is_measured_in_the_database_on_the_rows_that_test(backend, task):
    server = InDatabase(backend())
    data = {"binary": lambda: load(SMALL), "classes": digits, "regression": regression}[task]()
    split = split_of(data)
    measured = scores.figures(split, server.evaluate(split, 1e4, algorithm="objective_perturbation"))
    assert measured["rmse"] < 1.5 if task == "regression" else measured["accuracy"] > 0.9
    assert len(server.evaluate(split, 1.0)[0].predicted) == len(split.test)
    server.close()
    assert backend().execute("select to_regclass('accuracy_train')").fetchone() == (None,)


def digits():
    """Three classes of arrays, each with its own direction."""
    random = np.random.default_rng(3)
    places = random.integers(0, 3, 500)
    rows = pd.DataFrame(np.eye(3)[places] + 0.1 * random.normal(size=(500, 3))).assign(y=places.astype(str))
    return Data("digits", "y", {"classes": ["0", "1", "2"]}, {"x": {"length": 3, "norm": 2}}, rows)


# --- regret -----------------------------------------------------------------------------------------------------


def test_the_rule_and_every_setting_learn_by_the_plan_itself():
    split, (rule, *grid, constant) = Split.of(SMALL, 0), regret.methods()
    assert len(grid) == 18 and constant.name == "constant"
    for method in (rule, grid[0], grid[-1]):
        assert scores.figures(split, method.evaluate(split, 1e4))["accuracy"] > 0.9  # hardly any noise
    guess = scores.figures(split, rule.evaluate(split, 1e-4))["accuracy"]
    assert guess < 0.9  # a control: nothing but noise


@pytest.mark.parametrize(("metric", "figures", "lost"), [("accuracy", (0.8, 0.83), 3), ("rmse", (4.4, 4.0), 10)])
def test_the_regret_is_the_loss_to_the_other_splits_choice(metric, figures, lost):
    rule, best = figures
    worse = best + (1 if metric == "rmse" else -0.5)
    names = [method.name for method in regret.methods() if method.private]
    values = {name: worse for name in names} | {"rule": rule, names[-1]: best}
    results = [result(name, split=split, **{metric: value}) for split in (0, 1) for name, value in values.items()]
    assert regret.regrets(results[:-1]) == []  # a setting is missing
    (regret_of_wine,) = regret.regrets([*results, result("constant", None, **{metric: 0.5})])
    assert (regret_of_wine.setting, regret_of_wine.constant) == (names[-1], 0.5)
    assert regret_of_wine.loss == pytest.approx(lost)
    assert regret_of_wine.line.startswith("| wine | ")


def test_a_setting_best_by_chance_is_not_called_better():
    names = [method.name for method in regret.methods() if method.private]
    lucky = {(0, names[1]): 0.9, (1, names[2]): 0.9}
    results = [result(name, split=split, accuracy=lucky.get((split, name), 0.5)) for split in (0, 1) for name in names]
    assert regret.regrets(results)[0].loss == 0
