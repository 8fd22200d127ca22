"""A check of a declaration against the rows, for a role that may read them: exact counts, which must not be published.

It runs in a client, which reads the rows through dbdp_internal.table_rows, as a table's owner and with a check of the
caller's right to read them; no interface of the server reaches it. Nothing is charged and nothing is stored.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from dbdp.learning.rows.features import REQUIRED
from dbdp.registry import datasets
from dbdp.registry.datasets import RegisteredDataset
from dbdp.registry.declarations import Declaration
from dbdp.sessions.session import Session

_EXAMPLES = 5  # unknown values that are shown of a column
_CELLS = """
from dbdp_internal.table_rows($1::text::regclass, null, null) as r
cross join lateral json_each_text(r.shown) as c
"""
_NUMBERS = f"""
select c.key as name,
       count(*) filter (where c.value is null) as missing,
       count(*) filter (where n.number = 'NaN') as nan,
       count(*) filter (where n.number < b.lower) as below,
       count(*) filter (where n.number > b.upper and n.number <> 'NaN') as above,
       case when count(distinct c.value) = 1 and count(c.value) > 1 then count(c.value) else 0 end as constant,
       min(c.value) as least
{_CELLS}
join (select unnest($2::text[]) as name, unnest($3::float8[])::numeric as lower, unnest($4::float8[])::numeric as upper)
    as b on b.name = c.key
cross join lateral (select case c.value when 'true' then 1 when 'false' then 0 else c.value::numeric end as number) as n
group by c.key
"""
_VALUES = f"select c.key as name, c.value, count(*) as rows {_CELLS} where c.key = any($2) group by c.key, c.value"
_ARRAYS = f"""
select count(*) filter (where c.value is null) as missing,
       count(*) filter (where a.length <> $3) as other_length,
       count(*) filter (where a.norm > $4 and a.norm <> 'NaN') as longer,
       count(*) filter (where a.gaps > 0) as gaps
{_CELLS}
left join lateral (
    select count(*) as length,
           count(*) filter (where e.value is null or e.value = 'NaN') as gaps,
           sqrt(sum(e.value::numeric ^ 2)) as norm
    from json_array_elements_text(c.value::json) as e
) as a on c.value is not null
where c.key = $2
"""
_UNITS = f"""
select count(*) as units, coalesce(sum(greatest(u.rows - $3, 0)), 0)::int8 as more
from (select count(*) as rows {_CELLS} where c.key = $2 and c.value is not null group by c.value) as u
"""
_LOST = """
select count(*) filter (where l.of_any) as of_any, count(*) filter (where l.of_required) as of_required
from dbdp_internal.table_rows($1::text::regclass, null, null) as r
cross join lateral (
    select bool_or(true) as of_any, bool_or(c.key = any($4)) as of_required
    from json_each_text(r.shown) as c
    where c.key = any($2)
    and (c.value is null or (c.key = any($3) and c.value in ('NaN', 'Infinity', '-Infinity')))
) as l
"""
_COUNT = "select count(*) as rows from dbdp_internal.table_rows($1::text::regclass, null, null)"


@dataclass(frozen=True)
class Finding:
    """Rows of one column that do not agree with its declaration.

    Attributes
    ----------
    column : str
        Name of the column.
    finding : str
        What does not agree.
    rows : int
        Exact number of such rows.
    share : float
        Of all rows.
    """

    column: str
    finding: str
    rows: int
    share: float


@dataclass(frozen=True)
class DeclarationCheck:
    """The result of a check. It is exact: do not publish it.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    rows : int
        Rows of the table.
    classes : dict[str, int]
        Rows of each declared class; empty for a label that is a number.
    findings : list[Finding]
        What does not agree, by column; empty if all does.
    lost : int
        Rows that no training learns from, since the label, the unit or a column that is declared as required is NULL
        or not finite. A NULL within an array is a finding, and not counted here.
    lost_if_required : int
        Rows that no training would learn from if every column were declared as required.
    private : bool
        False: the counts must not be published.
    """

    dataset: str
    rows: int
    classes: dict[str, int]
    findings: list[Finding]
    lost: int
    lost_if_required: int
    private: bool = False


def check(session: Session, name: str) -> DeclarationCheck:
    """Compare a dataset's declaration with its rows."""
    session.check_exact_results()
    dataset = datasets.load(session, name)
    declaration, declared = dataset.declaration, _declared_values(dataset.declaration)
    rows = session.query(_COUNT, dataset.source)[0]["rows"]
    counts = _counts(session, dataset, declared)
    disagreeing = [*_of_numbers(session, dataset), *_of_array(session, dataset)]
    for column, known in declared.items():
        disagreeing += _of_values(declaration, column, known, counts[column])
    labels: Mapping[str | None, int] = counts.get(declaration.label, {})
    classes = {value: labels.get(value, 0) for value in declared.get(declaration.label, ())}
    order = [declaration.label, *declaration.columns]
    disagreeing.sort(key=lambda each: order.index(each[0]))
    disagreeing += _of_size(session, dataset, rows)
    findings = [Finding(*each, each[2] / max(rows, 1)) for each in disagreeing]
    return DeclarationCheck(name, rows, classes, findings, *_lost(session, dataset))


def _lost(session: Session, dataset: RegisteredDataset) -> tuple[int, int]:
    """Return how many rows a NULL, or a number that is not finite, makes zero rows: as declared, and if all did."""
    declaration = dataset.declaration
    always = [declaration.label, *([dataset.unit.column] if dataset.unit else [])]
    kept = {feature.column for feature in declaration.parts if feature.null != REQUIRED}
    numbers = [feature.column for feature in declaration.numeric]
    numbers += [declaration.label] if declaration.kind == "real" else []
    columns = [*always, *declaration.columns]
    required = [column for column in columns if column not in kept]
    (row,) = session.query(_LOST, dataset.source, columns, numbers, required)
    return row["of_required"], row["of_any"]


def _of_size(session: Session, dataset: RegisteredDataset, rows: int) -> Iterator[tuple[str, str, int]]:
    """Yield how many rows, or units, are beyond the capacity, and rows beyond those that are read of each unit."""
    column, present, word = "", rows, "rows"
    if dataset.unit:
        column, word = dataset.unit.column, "units"
        counted = session.query(_UNITS, dataset.source, column, dataset.unit.max_rows)[0]
        present = counted["units"]
        if counted["more"]:
            yield column, f"rows beyond the {dataset.unit.max_rows} that are read of a unit", counted["more"]
    if dataset.capacity is not None and present > dataset.capacity:
        yield column, f"{word} beyond the capacity of {dataset.capacity}", present - dataset.capacity


def _declared_values(declaration: Declaration) -> dict[str, tuple[str, ...]]:
    """Return the declared values of each column that has some: categories, and the classes of the label."""
    known = {feature.column: feature.categories for feature in declaration.categorical}
    if declaration.kind != "real":
        binary = (value for value in (declaration.negative, declaration.positive) if value is not None)
        known[declaration.label] = declaration.classes or tuple(binary)
    return known


def _counts(session: Session, dataset: RegisteredDataset, columns: Iterable[str]) -> dict[str, Counter[str | None]]:
    """Return the number of rows with each value, for each column with declared values."""
    counts: dict[str, Counter[str | None]] = {column: Counter() for column in columns}
    for row in session.query(_VALUES, dataset.source, list(counts)):
        counts[row["name"]][_text(row["value"], dataset.column_types[row["name"]])] += row["rows"]
    return counts


def _text(value: str | None, type_name: str) -> str | None:
    """Return a value of a row as a declaration writes it: by its number, or without the blanks of `character`."""
    if value is None or value in ("NaN", "Infinity", "-Infinity"):
        return value
    if type_name in ("real", "double precision", "numeric"):
        return f"{Decimal(value).normalize():f}"
    return value.rstrip(" ") if type_name == "character" else value


def _of_values(
    declaration: Declaration, column: str, known: tuple[str, ...], counts: Counter[str | None]
) -> Iterator[tuple[str, str, int]]:
    """Yield what does not agree in a column with declared values."""
    is_label = column == declaration.label
    present = {value: rows for value, rows in counts.most_common() if value is not None}
    if None in counts:
        yield column, "NULL", counts[None]
    unknown = {value: rows for value, rows in present.items() if value not in known}
    if unknown and not (is_label and declaration.kind == "binary" and declaration.negative is None):
        shown = ", ".join(f"{value!r} ({rows})" for value, rows in list(unknown.items())[:_EXAMPLES])
        what = "unknown labels" if is_label else "unknown categories"
        yield column, f"{what}: {shown}{', …' if len(unknown) > _EXAMPLES else ''}", sum(unknown.values())
    for value in known:
        if value not in present:
            yield column, f"{value!r} never occurs", 0
    if len(present) == 1 and sum(present.values()) > 1:
        yield column, f"constant: {next(iter(present))!r}", sum(present.values())


def _of_numbers(session: Session, dataset: RegisteredDataset) -> Iterator[tuple[str, str, int]]:
    """Yield what does not agree in the columns of numbers."""
    declaration = dataset.declaration
    bounds = {feature.column: (feature.lower, feature.upper) for feature in declaration.numeric}
    if declaration.label_bounds is not None:
        bounds[declaration.label] = declaration.label_bounds
    lowers, uppers = ([float(pair[side]) for pair in bounds.values()] for side in (0, 1))
    if not bounds:
        return
    for row in session.query(_NUMBERS, dataset.source, list(bounds), lowers, uppers):
        lower, upper = bounds[row["name"]]
        for key, text in {
            "missing": "NULL",
            "nan": "NaN",
            "below": f"below {lower:g}, which they are clipped to",
            "above": f"above {upper:g}, which they are clipped to",
            "constant": f"constant: {row['least']}",
        }.items():
            if row[key]:
                yield row["name"], text, row[key]


def _of_array(session: Session, dataset: RegisteredDataset) -> Iterator[tuple[str, str, int]]:
    """Yield what does not agree in the array column, if that is what is declared."""
    vector = dataset.declaration.vector
    if vector is None:
        return
    texts = {
        "missing": "NULL",
        "other_length": f"of another length than {vector.length}",
        "longer": f"of a norm above {vector.norm_bound:g}, which they are scaled to",
        "gaps": "with NULL or NaN in the array",
    }
    (row,) = session.query(_ARRAYS, dataset.source, vector.column, vector.length, float(vector.norm_bound))
    yield from ((vector.column, text, row[key]) for key, text in texts.items() if row[key])
