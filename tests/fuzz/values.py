"""Strategies: tables and their contents, declarations, requests: valid, boundary and none at all.

Options of a training come from `dbdp.controller.training_options`, their words from its texts, settings from the
algorithms' own records: what is added there is fuzzed too.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from watch import NUMBER, SMALL, WORD

from dbdp.algorithms import ALGORITHMS
from dbdp.algorithms.declared_options import declared
from dbdp.controller import training_options

# --- what a row may hold, as PostgreSQL reads it from text -------------------------------------------------

ODD_FLOATS = ["NaN", "Infinity", "-Infinity", "0", "-0", "1e308", "-1e308", "5e-324", "2.3e-308", "0.5", "-1", "1"]
FLOATS = st.sampled_from([*ODD_FLOATS, repr(NUMBER), repr(-NUMBER)]) | st.floats(-3, 3).map(repr)
REALS = st.sampled_from(["NaN", "Infinity", "-Infinity", "1e38", "1e-45", "0.5", "-0", repr(NUMBER)])
NUMERICS = st.sampled_from(
    ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "0.1", repr(NUMBER), "9" * 200, "-0." + "9" * 200]
)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
WORDS = (
    st.sampled_from(["a", "b", "A", "a ", " a", "", "it's", 'say "a"', "\\", "{a}", "%s", "$1", WORD, WORD * 40])
    | st.sampled_from(["e\u0301", "\u00e9", "\U0001f40d", "\u202eb", "x" * 9000])
    | TEXT
)
ELEMENTS = FLOATS | st.just("NULL")


def _array(elements: list[str]) -> str:
    return "{" + ",".join(elements) + "}"


def arrays(elements: st.SearchStrategy[str], length: int) -> st.SearchStrategy[str]:
    """Arrays of the length, and of every other shape."""
    whole = st.lists(elements, min_size=length, max_size=length).map(_array)
    other = st.lists(elements | st.just("NULL"), max_size=2 * length).map(_array)
    square = st.lists(elements, min_size=length, max_size=length).map(lambda row: _array([_array(row), _array(row)]))
    moved = whole.map(lambda text: f"[0:{length - 1}]={text}")
    long = elements.map(lambda element: _array([element] * 5000))
    return st.one_of(whole, whole, whole, other, square, moved, long, st.just("{}"))


WHOLE = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
VALUES: dict[str, st.SearchStrategy[str]] = {
    **{
        name: st.sampled_from([0, 1, 2, -1, most - 1, -most]).map(str) | st.just(str(min(SMALL, most - 1)))
        for name, most in WHOLE.items()
    },
    "real": REALS,
    "double precision": FLOATS,
    "numeric": NUMERICS,
    "boolean": st.sampled_from(["true", "false"]),
    "text": WORDS,
    "character varying": WORDS,
    "character(4)": st.sampled_from(["a", "b   ", "", "it's", "\u00e9"]),
    "fuzz_mood": st.sampled_from(["a", "b", "it's", 'say "a"']),
    "fuzz_number": FLOATS,
    "fuzz_word": WORDS,
    "double precision[]": arrays(FLOATS, 3),
    "real[]": arrays(REALS, 3),
    "fuzz_vector": arrays(FLOATS, 3),
}
TYPES = """
create type fuzz_mood as enum ('a', 'b', 'it''s', 'say "a"');
create domain fuzz_number as float8; create domain fuzz_word as text; create domain fuzz_vector as float8[]"""
NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric", "boolean", "fuzz_number")
CATEGORIES = {
    **{name: ("0", "1", "2") for name in WHOLE},
    "boolean": ("true", "false"),
    **{name: ("a", "b", "it's", 'say "a"', "e\u0301") for name in ("text", "character varying", "fuzz_word")},
    "character(4)": ("a", "it's"),
    "fuzz_mood": ("a", "it's", 'say "a"'),
}
VECTORS = ("double precision[]", "real[]", "fuzz_vector")
NAMES = ("x", "it's", 'say "x"', "select", "\u00e9\U0001f40d", "X y", "%s", "x" * 63)
RANGES = ([-1, 1], [0, 1], [-1e300, 1e300], [-1.5, 1e13], [0.999999, 1], [-1e-3, 2e15])
CODINGS = ({}, {"bins": 3}, {"scale": "asinh"}, {"bins": 5, "scale": "asinh"})
BOUNDS = (*RANGES, *({"bounds": bounds} | coding for bounds in RANGES for coding in CODINGS))
LAYOUTS = ("plain", "dropped column", "partitioned", "unlogged", "generated", "compressed elsewhere")


@dataclass(frozen=True)
class Table:
    """A table with a sound declaration.

    Attributes
    ----------
    columns : names and types: the features, then the label `y`
    rows : of texts, None for null
    declared : the arguments label, positive, negative, classes, label_bounds and features of a registration
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str | None, ...], ...]
    declared: dict[str, Any]
    layout: str
    intercept: bool

    @property
    def kind(self) -> str:
        return next(kind for kind in ("positive", "classes", "label_bounds") if kind in self.declared)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Tables of every supported type and layout, with rows of every oddity."""
    columns, features = draw(_vector_column() | _plain_columns())
    label, declared = draw(_labels())
    columns = (*columns, ("y", label))
    row = st.tuples(*(st.none() | VALUES[kind] for _, kind in columns))
    rows = draw(st.lists(row, min_size=1, max_size=7))
    return Table(
        columns,
        tuple(rows),
        {"label": "y", "features": features, **declared},
        draw(st.sampled_from(LAYOUTS)),
        draw(st.booleans()),
    )


@st.composite
def _vector_column(draw: st.DrawFn) -> tuple[tuple[tuple[str, str], ...], dict[str, Any]]:
    name, kind = draw(st.sampled_from(NAMES)), draw(st.sampled_from(VECTORS))
    norm = draw(st.sampled_from([1, 1e-100, 1e100, 2e12]))
    return ((name, kind),), {name: {"length": 3, "norm": norm}}


@st.composite
def _plain_columns(draw: st.DrawFn) -> tuple[tuple[tuple[str, str], ...], dict[str, Any]]:
    columns, features = [], {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)):
        if draw(st.booleans()):
            kind = draw(st.sampled_from(NUMBERS))
            features[name] = draw(st.sampled_from(BOUNDS))
        else:
            kind = draw(st.sampled_from(list(CATEGORIES)))
            features[name] = list(draw(st.lists(st.sampled_from(CATEGORIES[kind]), min_size=1, unique=True)))
        columns.append((name, kind))
    return tuple(columns), features


@st.composite
def _labels(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A label's type, and its part of a declaration."""
    if draw(st.integers(0, 3)) == 0:
        bounds = draw(st.sampled_from([[-1, 1], [0, 1e13], [-1e100, 1e100], [0, 1e-100]]))
        return draw(st.sampled_from(NUMBERS)), {"label_bounds": bounds}
    kind = draw(st.sampled_from(list(CATEGORIES)))
    if draw(st.booleans()):
        return kind, {"classes": list(CATEGORIES[kind][:3])}
    first, second = CATEGORIES[kind][:2]
    return kind, {"positive": first, "negative": second}


# --- requests ------------------------------------------------------------------------------------------

ODD_NUMBERS = [0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, 1e-9]
SOUND_NUMBERS = {
    "epsilon": [1.0, 0.1, 1e-9, 1e6],
    "delta": [0.0, 1e-6, 1e-30],
    "positive_weight": [1.0, 2.0],
    "step_size": [None, None, 0.1],
    "exponent": [None, None, 0.5],
    "regularisation": [None, 0.01, 0.1],
    "radius": [None, None, 1.0],
    "huber_width": [None, None, 0.5],
    "clip_norm": [None, None, 1.0],
    "epochs": [1, 2],
    "shards": [1, 1, 2],
    "batch_size": [None, 1, 2],
}
ODD_WORDS = ["", "nope", "it's", "é" * 70, "x" * 5000, "mlp:0", "mlp:99999999999", "cnn:1", "mlp:2", "[[[[", "null"]
OPTIONS = {each.name: kind for each, kind in training_options.options()}
PACE = {"epochs": [0, -1, 2**31 - 1], "shards": [0, -1, 2**31 - 1]}  # whatever is taken ends soon


def _numbers(name: str, kind: type) -> st.SearchStrategy[Any]:
    odd = PACE.get(name, [0, -1, 1, 2, 3, 2**31 - 1, -(2**31)]) if kind is int else ODD_NUMBERS
    return st.sampled_from([*SOUND_NUMBERS.get(name, [None, 1]), *odd])


def _words(name: str) -> st.SearchStrategy[Any]:
    odd = st.sampled_from([*ODD_WORDS, None])
    if name == "name":  # of models of one dataset: most are new
        return st.text("abcdefgh", min_size=16, max_size=16) | odd
    return st.sampled_from(re.findall(r"[a-z_0-9:]+", training_options.description_of(name))) | odd


OWN = {name: list(declared(kind)) if (kind := each.OPTIONS.own_settings) else [] for name, each in ALGORITHMS.items()}
SHORT_SETTINGS = {  # what ends within milliseconds, of those that may take long
    name: {
        setting: value
        for setting, value in (
            ("planned_steps", 2),
            ("splits", 2),
            ("generations", 2),
            ("population", 10),
            ("passes", 2),
        )
    }
    for name in ALGORITHMS
}
OWN_VALUES = st.sampled_from([0, 1, 2, -1, 0.5, 1e308, 2**63, "1", None, True, [], {}, -0.1, 2.0])


@st.composite
def _settings(draw: st.DrawFn, algorithm: str) -> str | None:
    known = OWN.get(algorithm, [])
    short = {setting: value for setting, value in SHORT_SETTINGS.get(algorithm, {}).items() if setting in known}
    if draw(st.integers(0, 3)):
        return json.dumps(short) if short else None
    if known and draw(st.booleans()):
        return json.dumps(short | draw(st.dictionaries(st.sampled_from(known), OWN_VALUES, max_size=2)))
    return draw(st.sampled_from(["", "[1]", "{", '{"a": 1}', "[" * 3000, '{"a": 1e999}', "null", "9" * 5000]))


@st.composite
def requests(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """The options of a training that suits a label, with some of them changed."""
    given = draw(sound_requests(kind))
    for name in draw(st.just([]) | st.lists(st.sampled_from(sorted(OPTIONS)), max_size=3)):  # half are sound
        if name == "settings":
            given[name] = draw(_settings(given["algorithm"]))
        else:
            given[name] = draw(_words(name) if OPTIONS[name] is str else _numbers(name, OPTIONS[name]))
    return given


@st.composite
def sound_requests(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Options that suit a label: most can be planned."""
    algorithm = draw(st.sampled_from(list(ALGORITHMS)))
    short = {setting: value for setting, value in SHORT_SETTINGS[algorithm].items() if setting in OWN[algorithm]}
    arguments: dict[str, Any] = {
        "algorithm": algorithm,
        "epsilon": 1.0,
        "delta": draw(st.sampled_from([0.0, 1e-6, 1e-6])),
    }
    arguments |= {"settings": json.dumps(short)} if short else {"epochs": draw(st.sampled_from([1, 2]))}
    if kind == "label_bounds":
        arguments["loss"] = draw(st.sampled_from(["huber_regression", "squared"]))
        arguments |= {"radius": 1.0} if arguments["loss"] == "squared" else {}
    if draw(st.integers(0, 4)) == 0:
        arguments["network"] = draw(st.sampled_from(["mlp:2", "mlp:1,1"]))
    if algorithm == "objective_perturbation":
        arguments["regularisation"] = 0.1
    return arguments


# --- JSON of every kind -----------------------------------------------------------------------------------

ODD_JSON = st.sampled_from(
    [None, True, 0, -1, 1.5, 1e308, 10**400, 900, 2**63 - 1, "", "a", "\0", "\ud800", "e\u0301", [], {}, 5e-324]
)
NESTED = st.recursive(
    ODD_JSON | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


def mutated(sound: Any) -> st.SearchStrategy[Any]:
    """The value with one part of it replaced, dropped or added; or any other."""
    return _mutated(sound) | NESTED


@st.composite
def _mutated(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        fate = draw(st.integers(0, 5))
        rest = {name: inner for name, inner in value.items() if name != key}
        if fate == 0:
            return rest
        return rest | {key if fate > 1 else draw(TEXT): draw(_mutated(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(_mutated(value[place])), *value[place + 1 :]]
    return draw(NESTED)
