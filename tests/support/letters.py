"""A small table of a number in seven values, a letter and a label in three."""

TABLE = """
create table t as select (i % 7) / 7.0::float8 as a, (array['u', 'v', 'w'])[i % 3 + 1] as b, i % 3 as y
from generate_series(1, 300) as i"""
