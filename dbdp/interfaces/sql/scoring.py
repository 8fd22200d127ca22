"""Prediction with a released model, for arrays and for rows, inside the server.

`dbdp.predict` is called once for each row, so scorers are compiled. The kind of a model is that of its dataset's
label, `binary`, `classes` or `real`, and each kind has its own functions. The probabilities of classes are a fourth
kind, since they need other scorers. A network is scored by NumPy, which is loaded with the first one.
"""

import ctypes
import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from dbdp import checks
from dbdp.interfaces.sql import _scorer as compiled
from dbdp.interfaces.sql import json_rows, outcomes, threads
from dbdp.interfaces.sql._scorer import MOST_KNOWN
from dbdp.learning.rows.features import SCALED
from dbdp.registry.declarations import Declaration
from dbdp.registry.results import class_probabilities, row_columns

Scorer = Callable[[bytes], float | None]


def _functions_of_server() -> tuple[Any, ...]:
    """Return the server's functions that are the arguments of `Scorers`; an empty tuple in a client."""
    server = ctypes.PyDLL(None)
    if not hasattr(server, "GetUserId"):
        return ()
    functions = server.GetUserId, server.GetCurrentCommandId, server.GetCurrentSubTransactionId
    return tuple(ctypes.cast(each, ctypes.c_void_p).value for each in functions)


_PROBABILITIES = "probabilities"
_KINDS = ("binary", "classes", "real", _PROBABILITIES)
_scorers: dict[str, Any] = {kind: compiled.Scorers(*_functions_of_server()) for kind in _KINDS}
_binary_kind, _classes_kind, _real_kind, _probabilities_kind = _scorers.values()
predict, predict_named = _binary_kind.predict, _binary_kind.predict_named
predict_stored, predict_stored_named = _binary_kind.predict_stored, _binary_kind.predict_stored_named
probability, probability_named = _binary_kind.probability, _binary_kind.probability_named
probability_stored, probability_stored_named = _binary_kind.probability_stored, _binary_kind.probability_stored_named
predict_class, predict_class_named = _classes_kind.label, _classes_kind.label_named
predict_class_stored, predict_class_stored_named = _classes_kind.label_stored, _classes_kind.label_stored_named
predict_value, predict_value_named = _real_kind.value, _real_kind.value_named
predict_value_stored, predict_value_stored_named = _real_kind.value_stored, _real_kind.value_stored_named
probabilities, probabilities_named = _probabilities_kind.probabilities, _probabilities_kind.probabilities_named
probabilities_stored = _probabilities_kind.probabilities_stored
probabilities_stored_named = _probabilities_kind.probabilities_stored_named
_FUNCTIONS = {
    "binary": "dbdp.predict or dbdp.predict_probability",
    "classes": "dbdp.predict_class or dbdp.predict_probabilities",
    "real": "dbdp.predict_value",
}
_LABELS = {"binary": "a label with two values", "classes": "one of several classes", "real": "a number"}
_MISSING = "model is required, e.g. its name, or its number in dbdp.models"
_vouched: dict[tuple[int, int], bytes] = {}  # hashes of what the server stores, by model and row type
_names: dict[int, tuple[str | None, int | None]] = {}  # name and version, of models whose scorers were created
_kept: dict[tuple[str, int, int], tuple[bytes, tuple[Scorer, ...]]] = {}  # hash and scorers, by kind, model and type
_checks: dict[tuple[str, int, int], Callable[[bytes | None], None]] = {}  # of arrays and JSON, by kind, model and type


def forget() -> None:
    """Drop all scorers."""
    _checks.clear()
    _kept.clear()
    _names.clear()
    for scorers in _scorers.values():
        scorers.forget()


def knows(model: int, row_type: int, kind: str) -> bool:
    """Return whether there is a scorer for a model of this kind and rows of this type."""
    return kind in _scorers and _scorers[kind].knows(model, row_type)


def fits(model: int | None, row_type: int, features: bytes | None, kind: str) -> bool:
    """Return whether there is a scorer for a model, and an array or JSON has the form that the model needs."""
    if model is None or not knows(model, row_type, kind):
        return False
    check = _checks.get((kind, model, row_type))
    if check is None:
        return False
    try:
        check(features)
    except ValueError:
        return False
    return True


def fits_named(name: str | None, row_type: int, features: bytes | None, kind: str, statement: float) -> bool:
    """As `fits`, by name."""
    number = _scorers[kind].number(name, statement) if name is not None and kind in _scorers else None
    return fits(number, row_type, features, kind)


def knows_named(name: str, row_type: int, kind: str, statement: float) -> bool:
    """Return whether there is a scorer for the model that a name means in this statement."""
    number = _scorers[kind].number(name, statement) if kind in _scorers else None
    return number is not None and knows(number, row_type, kind)


def remember(name: str, number: int, kind: str, statement: float) -> int:
    """Store the number of a model by its name, until the statement ends, and return it."""
    if kind in _scorers and _is_name(name, number):
        _scorers[kind].remember(name, number, statement)
    return number


def _is_name(name: str, number: int) -> bool:
    """Return whether a name, `name@version` or number written as text means a model with a scorer."""
    own, version = _names.get(number, (None, None))
    return name == str(number) or (own is not None and name in (own, f"{own}@{version}"))


def vouch(model: int, row_type: int, description: str | None) -> bool:
    """Remember that a description is the one that the server stores; only `dbdp_internal.vouched` may call it."""
    if description is not None:
        if len(_vouched) >= MOST_KNOWN:
            _vouched.clear()
        _vouched[model, row_type] = _hash(description)
    return True


def _hash(description: str) -> bytes:
    return hashlib.sha256(description.encode()).digest()


def _check_vouched(model: int | None, row_type: int, description: str | None) -> None:
    """Raise ValueError for a description that `vouch` was not passed for the model and rows of the type."""
    if model is None or description is None or _vouched.get((model, row_type)) == _hash(description):
        return
    raise ValueError(
        f"the description of model {model} is not the server's; call dbdp.predict, or pass the result of "
        "dbdp_internal.model_description of the same model and type of rows"
    )


def no_model(name: str | None, known: list[str | None] | None) -> None:
    """Raise ValueError for a name that no model has; `known` are those that the caller may predict with."""
    raise ValueError(_MISSING if name is None else checks.no_model(name, [each for each in known or () if each]))


def try_no_model(*arguments: Any) -> None:
    """Refuse as `no_model` does; the refusal is recorded for `accepted`."""
    outcomes.recorded(no_model, *arguments)


def learn(model: int | None, row_type: int, description: str | None, kind: str) -> bool:
    """Create the scorers of a model from its description, or use those that were made of the same one.

    A statement that predicts for rows asks for them again, as their table may have been altered; the description would
    differ then. Scorers follow from the description, the kind and the row's type, so that whoever brings the same one,
    which the server has vouched for, gets the same.
    """
    kept = _kept.get((kind, cast(int, model), row_type))
    if kept is not None and description is not None and kept[0] == _hash(description):
        _scorers[kind].add(model, row_type, *kept[1])
    else:
        _learned(model, row_type, description, kind)
    return True


def learn_for(model: int | None, row_type: int, description: str | None, kind: str, features: bytes | None) -> bool:
    """Create the scorers of a model as `learn` does, and refuse an array or JSON that it cannot be used for."""
    declaration = _learned(model, row_type, description, kind)
    if len(_checks) >= MOST_KNOWN:
        _checks.clear()
    check = json_rows.checker(declaration) if row_type == json_rows.TYPE else partial(_check_shape, declaration)
    _checks[kind, cast(int, model), row_type] = check
    check(features)
    return True


def _check_shape(declaration: Declaration, features: bytes | None) -> None:
    """Raise ValueError unless an array, in the server's bytes, has the length of the array that was declared."""
    vector = declaration.vector
    if features is None or vector is None:
        return
    dimensions, length = struct.unpack_from("<i", features)[0], 0
    if dimensions > 1:
        raise ValueError(f"the array has {dimensions} dimensions; pass one list of {vector.length} numbers")
    if dimensions:
        length = struct.unpack_from("<i", features, 12)[0]
    if length != vector.length:
        raise ValueError(checks.wrong_length(length, vector.length))


def _learned(model: int | None, row_type: int, description: str | None, kind: str) -> Declaration:
    """Create the scorers of a model from its description, and return its declaration."""
    if model is None:
        raise ValueError(_MISSING)
    if description is None:
        raise ValueError(f"model {model} does not exist; see dbdp.models")
    described = json.loads(description)
    declaration = Declaration.of_stored(described["declaration"])
    _check_kind(model, declaration, described, kind)
    make = _of_json if row_type == json_rows.TYPE else _scorers_of
    if len(_names) >= 4 * MOST_KNOWN or len(_kept) >= MOST_KNOWN:
        forget()
    _names[model] = described.get("name"), described.get("version")
    scorers = make(declaration, described | {"kind": kind}, row_type)
    _scorers[kind].add(model, row_type, *scorers)
    _kept[kind, model, row_type] = _hash(description), scorers
    return declaration


def _check_kind(model: int, declaration: Declaration, described: dict[str, Any], kind: str) -> None:
    """Raise ValueError for a model of another label, or without the probabilities that were asked for."""
    if declaration.kind != ("classes" if kind == _PROBABILITIES else kind):
        raise ValueError(f"model {model} predicts {_LABELS[declaration.kind]}; call {_FUNCTIONS[declaration.kind]}")
    receipt = described.get("receipt") or {}
    if kind == _PROBABILITIES and not described["network"] and not class_probabilities.exist(receipt):
        raise ValueError(
            f"the loss of model {model} is {class_probabilities.loss_of(receipt) or 'unknown'!r}, which gives no "
            "probabilities; call dbdp.predict_class, or train a model with loss => 'logistic'"
        )


def _of_json(declaration: Declaration, described: dict[str, Any], row_type: int) -> tuple[Scorer, ...]:
    """Return the scorer of JSON, which is converted to the bytes of an array or a row first."""
    described = described | {"columns": json_rows.columns(declaration), "dropped": False}
    scorer = _scorers_of(declaration, described, 0 if declaration.vector else row_type)[0]
    return (compiled.EncodedScorer(json_rows.encoder(declaration), scorer),)


def _scorers_of(declaration: Declaration, described: dict[str, Any], row_type: int) -> tuple[Scorer, ...]:
    """Return the scorers of arrays, or of rows in their binary and, if possible, their stored form."""
    if described["network"]:
        return _of_network(declaration, described, row_type)
    make = _of_rows if row_type else _of_array
    return _of_classes(declaration, described, make) if declaration.kind == "classes" else make(declaration, described)


def _learn_vouched(model: int | None, row_type: int, description: str | None, *more: Any) -> bool:
    _check_vouched(model, row_type, description)
    return (learn_for if len(more) > 1 else learn)(model, row_type, description, *more)


def try_learn(*arguments: Any) -> bool | None:
    """Create the scorers as `learn` or, for features, `learn_for` does; a refusal is recorded for `accepted`."""
    learned: bool | None = outcomes.recorded(_learn_vouched, *arguments)
    return learned


def _of_network(declaration: Declaration, described: dict[str, Any], row_type: int) -> tuple[Scorer, ...]:
    """Return the scorer of a network, which calls Python in either form."""
    threads.limit_blas_to_one()
    from dbdp.registry.results import network_models

    if row_type:
        types = row_columns.types_of(declaration, described)
        weights = [1.0] * sum(each.width for each in declaration.numeric)
        weights += [float(place) for each in declaration.categorical for place in range(each.width)]
        places = [list(types).index(column) for column in declaration.columns]
        packer = network_models.column_packer(
            row_columns.RecordReader(row_columns.columns(declaration, weights, types, ">"), places)
        )
    else:
        _check_array(declaration)
        packer = network_models.array_packer
    scorer = network_models.scorer(declaration, described["network"], described["parameters"], packer)
    return (compiled.CalledScorer(scorer, scorer.classes),)


def _of_classes(declaration: Declaration, described: dict[str, Any], make: Callable[..., Any]) -> tuple[Scorer, ...]:
    """Return the scorers, in each form, that choose the class with the largest decision, or that have probabilities.

    The norm of the row would divide all decisions, which changes probabilities, but not the class.
    """
    classes = list(declaration.classes)
    if described["kind"] == _PROBABILITIES:
        is_apart = not class_probabilities.are_softmax(described["receipt"])
        scorer = partial(compiled.ProbabilitiesScorer, classes=classes, apart=is_apart)
    else:
        declaration, scorer = replace(declaration, encoding=SCALED), partial(compiled.ClassScorer, classes=classes)
    outputs = zip(described["coefficients"], described["intercepts"], strict=True)
    single = [make(declaration, described | {"coefficients": c, "intercept": i}) for c, i in outputs]
    return tuple(scorer(list(form)) for form in zip(*single, strict=True))


def _check_array(declaration: Declaration) -> None:
    if declaration.vector is None:
        columns = ", ".join(declaration.columns)
        raise ValueError(
            f"the model was trained on columns, not on an array; pass a row, or JSON, with the columns {columns}"
        )


def _of_rows(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    types, ending = row_columns.types_of(declaration, described), row_columns.ending(declaration)
    weights, intercept = row_columns.of_coordinates(declaration, described["coefficients"], described["intercept"])
    columns, crossing = _read(declaration, weights, types, ">")
    binary = compiled.RecordScorer(columns, intercept, ending, crossing)
    plain = all(types[column] in row_columns.STORED_PLAIN for column in declaration.columns)
    if not plain or described["dropped"]:
        return (binary,)
    lengths, aligns = zip(*((length, align) for _, length, align in described["columns"].values()), strict=True)
    columns, crossing = _read(declaration, weights, types, "<")
    return binary, compiled.StoredRowScorer(columns, intercept, lengths, "".join(aligns), ending, crossing)


def _read(*how: Any) -> tuple[list[row_columns.Column], row_columns.Crossing]:
    return row_columns.columns(*how), row_columns.crossing(*how)


def _of_array(declaration: Declaration, described: dict[str, Any]) -> tuple[Scorer, ...]:
    _check_array(declaration)
    return (compiled.VectorScorer(described["coefficients"], described["intercept"], row_columns.ending(declaration)),)
