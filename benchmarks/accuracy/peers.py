"""Other systems, and what needs no privacy."""

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

from benchmarks.accuracy import encoding
from benchmarks.accuracy.datasets import BINARY, CLASSES, REGRESSION, Split, is_text
from benchmarks.accuracy.scores import Prediction

STRENGTHS = {
    BINARY: (0.01, 0.1, 1.0, 10.0),
    CLASSES: (1.0,),
}  # C of diffprivlib's logistic regression: the best on the test rows counts
RIDGES = (1.0, 100.0)  # C without privacy


def dp_ebm(split: Split, epsilon: float) -> list[Prediction]:
    """Return the prediction of InterpretML's DP-EBM (Nori et al. 2021) with its own defaults."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    data = split.data
    settings: dict[str, Any] = {"epsilon": epsilon, "delta": data.delta, "n_jobs": 1} | described(split)
    table = data.rows[list(data.features)]
    train, test = table.iloc[split.train], table.iloc[split.test]
    if data.task == REGRESSION:
        lower, upper = data.declared["label_bounds"]
        settings |= {"privacy_target_min": lower, "privacy_target_max": upper}
        return [
            Prediction(DPExplainableBoostingRegressor(**settings).fit(train, data.truth[split.train]).predict(test))
        ]
    model = DPExplainableBoostingClassifier(**settings).fit(train, data.truth[split.train])
    positive = model.predict_proba(test)[:, 1]
    return [Prediction((positive > 0.5).astype(int), positive, positive)]


def described(split: Split) -> dict[str, Any]:
    """Return the public types and bounds of the columns, as InterpretML takes them."""
    features = split.data.features
    return {
        "feature_types": ["nominal" if is_text(declared) else "continuous" for declared in features.values()],
        "privacy_bounds": {name: tuple(declared) for name, declared in features.items() if not is_text(declared)},
    }


def diffprivlib(split: Split, epsilon: float) -> list[Prediction]:
    """Return the predictions of diffprivlib's linear models."""
    return (diffprivlib_linear if split.data.task == REGRESSION else diffprivlib_logistic)(split, epsilon)


def diffprivlib_logistic(split: Split, epsilon: float) -> list[Prediction]:
    """Return the prediction of diffprivlib's logistic regression with the C that is best on the test rows."""
    from diffprivlib.models import LogisticRegression as Private

    rows, labels = encoding.unit(split.data), split.data.truth
    strengths = STRENGTHS[split.data.task]
    models = (Private(epsilon=epsilon, data_norm=1.0, C=strength, fit_intercept=False) for strength in strengths)
    fitted = (model.fit(rows[split.train], labels[split.train]) for model in models)
    return [of_model(split, model, rows) for model in fitted]


def diffprivlib_linear(split: Split, epsilon: float) -> list[Prediction]:
    """Return the prediction of diffprivlib's linear regression; columns in [-1, 1] because of its #104."""
    from diffprivlib.models import LinearRegression as Private

    rows = 2 * encoding.scaled(split.data)[:, :-1] - 1
    bounds = tuple(split.data.declared["label_bounds"])
    model = Private(epsilon=epsilon, bounds_X=(-1, 1), bounds_y=bounds)
    return [Prediction(model.fit(rows[split.train], split.data.truth[split.train]).predict(rows[split.test]))]


def no_privacy(split: Split, _: float) -> list[Prediction]:
    """Return the best linear model without privacy: C and the length of rows are chosen on the test rows."""
    labels = split.data.truth[split.train]
    if split.data.task == REGRESSION:
        rows = encoding.scaled(split.data)
        return [Prediction(LinearRegression().fit(rows[split.train], labels).predict(rows[split.test]))]
    several = split.data.task == CLASSES
    tried = [(encoding.unit, 100.0)] if several else [(e, c) for e in (encoding.unit, encoding.scaled) for c in RIDGES]
    predictions = []
    for encode, ridge in tried:
        rows = encode(split.data)
        model = LogisticRegression(C=ridge, fit_intercept=False, max_iter=100 if several else 300)
        model.fit(rows[split.train], labels)
        predictions.append(Prediction.by_log_odds(model.decision_function(rows[split.test])))
    return predictions


def constant(split: Split, _: float) -> list[Prediction]:
    """Return the larger class of the training rows, or their mean."""
    labels = split.data.truth[split.train]
    tested = len(split.test)
    if split.data.task == REGRESSION:
        return [Prediction(np.full(tested, labels.mean()))]
    shares = np.bincount(labels) / len(labels)
    return [Prediction(np.full(tested, shares.argmax()), np.zeros(tested), np.tile(shares, (tested, 1)))]


def of_model(split: Split, model: Any, rows: np.ndarray) -> Prediction:
    """Return what a model of classes predicts for the test rows."""
    ranked = model.decision_function(rows[split.test]) if split.data.task == BINARY else None
    return Prediction(model.predict(rows[split.test]), ranked)
