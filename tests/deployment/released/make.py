"""Makes the files of this folder for a state of the tree: its script, and a dump of a database that its code used.

Unpack that state by `git archive`, compile it (`setup.py build_ext --inplace`), and run with it first on PYTHONPATH:
python make.py 0.2.0+last. The first states of 0.2.0 have other module names, and neither capacities nor summaries.
Up to 0.2.0 the views without `_details` have all columns.
"""

import json
import lzma
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg import conninfo

import dbdp
from dbdp.deployment.cluster import Cluster

HERE = Path(__file__).parent
FEATURES = '{"age": [0, 100], "smoker": [0, 1], "ward": ["A", "B", "C"]}'
ROWS = """
create table people as
select i as id, (i * 37 % 100)::float8 as age, i % 3 = 0 as smoker, chr(65 + i % 3) as ward,
       i * 37 % 100 + 20 * (i % 3) > 70 as ill, chr(88 + i % 3) as kind, (i * 37 % 100) / 10.0::float8 as cost,
       i / 4 as patient
from generate_series(1, 240) as i
"""
DATASETS = {
    "people": "'ill', 'true', {}, 3, 1e-5",
    "visits": """'kind', features => {}, epsilon => 9, delta => 1e-4, mode => 'basic', classes => '{{X,Y,Z}}'""",
    "costs": "'cost', features => {}, epsilon => 3, delta => 1e-5, mode => 'gaussian', label_bounds => '{{0,10}}'",
    "units": "'ill', 'true', {}, 3, 1e-5, unit => 'patient', max_rows => 4",
    "gone": "'ill', 'true', {}, 3, 1e-5",
    "rho": "'ill', 'true', {}, delta => 1e-5, rho => 0.5",
    "growing": "'ill', 'true', {}, 3, 1e-5, capacity => 400",
}
DETAILS = "" if dbdp.__version__ < "0.3.0" else "_details"
BOLT_ON = "algorithm => 'bolt_on', epochs => 2, batch_size => 20"
USED = f"""
select dbdp.grant_training('people', 'old_anna', 1.5);
select dbdp.grant_training('visits', 'old_anna', 1);
select dbdp.grant_training('units', 'old_anna');
select dbdp.grant_training('people', 'old_app', 0.3);
select dbdp.revoke_training('people', 'old_app');
select dbdp.dp_logreg('people', 0.5, 1e-7, {BOLT_ON});
select dbdp.dp_svm('people', 0.2, 1e-7, {BOLT_ON});
select dbdp.dp_train('visits', 1, 0, {BOLT_ON});
select dbdp.dp_linreg('costs', 1, 1e-7, {BOLT_ON});
select dbdp.dp_logreg('units', 0.3, 1e-7, {BOLT_ON});
select dbdp.dp_logreg('gone', 0.3, 1e-7, {BOLT_ON});
select dbdp.dp_logreg('rho', 0.3, 1e-7, {BOLT_ON});
select dbdp.dp_train('people', 0.5, 1e-7, 'dp_sgd', 'logistic', epochs => 1, network => 'mlp:3');
set session authorization old_anna;
select dbdp.dp_logreg('people', 0.1, 1e-8, {BOLT_ON});
select dbdp.dp_train('visits', 0.5, 0, {BOLT_ON});
begin;
select dbdp.dp_logreg('people', 0.1, 1e-8, {BOLT_ON});
rollback;
reset session authorization;
select dbdp.dp_score(1, 'people', 'accuracy', 0.1);
select dbdp.grant_prediction(1, 'old_app');
select dbdp.redeclare('people', 'ages are capped', '{FEATURES.replace("100", "90")}');
select dbdp.renew_budget('units', 'another year');
select dbdp.drop_dataset('gone');
select dbdp.dp_logreg('growing', 0.3, 1e-7, {BOLT_ON});
select dbdp.raise_capacity('growing', 'more of them', 500);
select dbdp.dp_summarize('growing', 0.5, 1e-7);
select dbdp.answer_at_multiples('growing', 'no clocks', 2);
create table predicted (model bigint, id int, how text, value text);
create view scored as select t.id, dbdp.predict_probability(1, t) as value from people as t;
create view listed as select name, epsilon from dbdp.datasets;
create view released as select id, receipt from dbdp.models{DETAILS};
grant execute on function dbdp.about to old_app;
create table allowed as
select dataset, role, charge_limit, charged, leak_limit, leaked, epsilon, epsilon as implied
from dbdp.allowances{DETAILS};
"""


def use(connection: psycopg.Connection) -> None:
    """Register tables, spend, release and amend."""
    connection.execute(ROWS)
    for name, declared in DATASETS.items():
        if name != "people":
            connection.execute(f"create table {name} as table people")
        arguments = declared.format(f"'{FEATURES}'")
        connection.execute(f"select dbdp.register_dataset('{name}', '{name}', {arguments})")
    for statement in filter(str.strip, USED.split(";")):
        connection.execute(statement)


def predict(connection: psycopg.Connection) -> None:
    """Write what each model predicts for 40 rows."""
    models = connection.execute("select id, declaration from dbdp.model where not is_summary").fetchall()
    for number, declaration in models:
        kinds = {"classes": ["predict_class"], "label_bounds": ["predict_value"]}
        named = [how for key, hows in kinds.items() if declaration.get(key) for how in hows]
        for how in named or ["predict", "predict_probability"]:
            connection.execute(
                f"insert into predicted select {number}, t.id, '{how}', dbdp.{how}({number}, t)::text "
                "from people as t where t.id <= 40"
            )


def dumped(url: str) -> bytes:
    """A dump of SQL alone, without comments and psql's own commands."""
    command = ["pg_dump", "--inserts", "--rows-per-insert=200", "--dbname", url]
    lines = subprocess.run(command, capture_output=True, check=True).stdout.splitlines()
    return b"\n".join(line for line in lines if line and not line.startswith((b"\\", b"--"))) + b"\n"


def main(state: str, home: Path) -> None:
    """Make both files."""
    cluster = Cluster(home)
    cluster.start()
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        (share,) = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()
        connection.execute("create database used template template0")
        connection.execute("create role old_anna in role dbdp_analyst; create role old_app in role dbdp_predictor")
    url = conninfo.make_conninfo(cluster.url, dbname="used")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create extension dbdp schema pg_catalog cascade")
        use(connection)
        predict(connection)
    script = (Path(share) / "extension" / f"dbdp--{dbdp.__version__}.sql").read_bytes()
    for name, text in ((f"dbdp--{state}", script), (f"used--{state}", dumped(url))):
        (HERE / f"{name}.sql.xz").write_bytes(lzma.compress(text, preset=9))
    cluster.remove()
    print(json.dumps({"made": state, "by": dbdp.__file__}))


if __name__ == "__main__":
    main(sys.argv[1], Path("/tmp/dbdp-released"))
