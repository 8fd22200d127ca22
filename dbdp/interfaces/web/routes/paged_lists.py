"""Long lists, which the server searches and divides into pages."""

from dataclasses import dataclass

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.views.page_refusals import Refusal, missing_dataset
from dbdp.sessions.session import Row

ROWS_OF_A_PAGE = 50

# Each query has a column `dataset`, and a column `words` that is searched.
DATASETS = """
select (select p.id from dbdp.dataset as p where p.name = d.name and p.dropped_at is null) as period,
       d.name as dataset, d.source, d.rows, d.declaration::text as declaration, d.epsilon, d.delta, d.mode,
       d.unit, d.max_rows, d.capacity, d.place as files, d.renews, d.reason,
       d.registered_by, d.registered_at, now() as now,
       exists (
           select
           from dbdp.dataset as p
           join dbdp.own_datasets as o on o.id = p.id
           where p.name = d.name
           and p.dropped_at is null
       ) as own,
       row_number() over (order by d.name) as place,
       concat_ws(' ', d.name, d.source, d.place, d.mode, d.unit, d.registered_by, d.declaration::text) as words
from dbdp.datasets_details as d
"""
MODELS = """
select m.id, m.name || '@' || m.version as reference, m.dataset, m.algorithm, m.receipt ->> 'loss' as loss,
       m.epsilon, m.delta, m.receipt ->> 'released_by' as released_by,
       (m.receipt ->> 'released_at')::timestamptz as released_at,
       -m.id as place,
       concat_ws(' ', m.id, m.name, m.dataset, m.algorithm, m.receipt ->> 'loss', m.receipt ->> 'released_by') as words
from dbdp.models_details as m
"""
STATISTICS = """
select s.*, -s.id as place, concat_ws(' ', s.id, s.dataset, s.kind) as words
from (
  select id, dataset, kind, epsilon, delta, released_at from dbdp.statistics
  union all
  select id, dataset, 'summary', epsilon, delta, (receipt ->> 'released_at')::timestamptz from dbdp.summaries_details
) as s
"""
LEDGER = """
select h.*, d.dropped_at is not null as is_over,
       (select count(*) from dbdp.dataset as o where o.name = d.name) > 1 as is_one_of_several,
       -h.id as place, concat_ws(' ', h.dataset, h.charged_by, h.algorithm, h.outcome) as words
from dbdp.history_details as h
join dbdp.dataset as d on d.id = h.period
"""
ALLOWANCES = """
select a.*, d.own, d.epsilon as dataset_epsilon,
       row_number() over (order by a.role, a.dataset) as place,
       concat_ws(' ', a.role, a.dataset, a.granted_by) as words
from dbdp.allowances_details as a
join (
  select name, epsilon, id in (select o.id from dbdp.own_datasets as o) as own
  from dbdp.dataset
  where dropped_at is null
) as d on d.name = a.dataset
"""
_FACTS = """
select d.epsilon, d.delta, coalesce(d.capacity, d.rows / coalesce(d.max_rows, 1)) as units,
       coalesce(pg_catalog.json_typeof(d.declaration -> 'label_bounds'), 'null') <> 'null' as is_number
from dbdp.datasets_details as d
where d.name = $1::text
"""
_PAGE = """
select each.*, count(*) over () as total
from ({listed}) as each
where strpos(lower(each.words), lower($1::text)) > 0
and ($2::text = '' or each.dataset = $2::text)
order by each.place
limit $3 offset $4
"""
_NUMBERED = "select each.* from ({listed}) as each where each.id = $1::int8"
_NAMED = "select each.* from ({listed}) as each where each.dataset = $1::text"


@dataclass(frozen=True)
class Page:
    """A page of a list."""

    rows: list[Row]
    total: int  # number of rows on all pages
    number: int  # number of the page, from 1
    search: str  # empty without a filter
    dataset: str  # empty without a filter

    @property
    def pages(self) -> int:
        """Number of pages, at least one."""
        return max(1, -(-self.total // ROWS_OF_A_PAGE))

    @property
    def is_narrowed(self) -> bool:
        """Whether the list has a filter."""
        return bool(self.search or self.dataset)


def listed(database: Database, listing: str, *, search: str = "", dataset: str = "", number: int = 1) -> Page:
    """Return a page of a list."""
    query = (_PAGE.format(listed=listing), search, dataset, ROWS_OF_A_PAGE)
    rows = database.query(*query, (number - 1) * ROWS_OF_A_PAGE)
    if not rows and number > 1:
        number, rows = 1, database.query(*query, 0)
    return Page(rows, rows[0]["total"] if rows else 0, number, search, dataset)


def dataset_named(database: Database, name: str) -> Row:
    """Return the row of a dataset in DATASETS."""
    rows = database.query(_NAMED.format(listed=DATASETS), name)
    if not rows:
        raise missing_dataset(name)
    return rows[0]


def own_dataset(database: Database, name: str, action: str) -> Row:
    """Return the row of a dataset that the role registered; raises Refusal unless it did, or as `dataset_named`."""
    row = dataset_named(database, name)
    if not row["own"]:
        text = f"{name} belongs to {row['registered_by']}; only that role may {action}."
        raise Refusal(403, "Not yours", text)
    return row


def names(database: Database) -> list[str]:
    """Return the names of the datasets that the role may train on, 1,000 at most."""
    return [row["name"] for row in database.query("select name from dbdp.datasets_details order by name limit 1000")]


def statistic_numbered(database: Database, number: int) -> Row | None:
    """Return the row of a statistic in STATISTICS; None if there is none, or none that the role may see."""
    rows = database.query(_NUMBERED.format(listed=STATISTICS), number)
    return rows[0] if rows else None


def public_facts(database: Database, name: str) -> Row | None:
    """Return the budget of a dataset, its number of units, and whether its label is a number; None without it."""
    rows = database.query(_FACTS, name)
    return rows[0] if rows else None
