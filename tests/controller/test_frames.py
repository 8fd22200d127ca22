"""How many Python frames of ours lie between an SQL call and the aggregate's transition."""

import psycopg
import pytest

COUNTED = """
do $$
import os, sys, dbdp
from dbdp.interfaces.sql import aggregates
GD["frames"] = set()
def counting(whole):
    def transition(*given):
        frame, files = sys._getframe(1), []
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        ours = sum(each.startswith(os.path.dirname(dbdp.__file__)) for each in files)
        GD["frames"].add((ours + 1, len(files) + 1))
        return whole(*given)
    return transition
for name in ("sgd_transition", "gradient_transition", "measured_gradient_transition"):
    setattr(aggregates, name, counting(getattr(aggregates, name)))
$$ language plpython3u;
create function pg_temp.frames() returns int[] language plpython3u as $$
return sorted(map(list, GD["frames"]))
$$"""


@pytest.mark.parametrize(("algorithm", "frames"), [("auto", [11, 15]), ("bolt_on", [10, 14])])
def test_a_training_reaches_its_rows_in_few_frames(server_url, connection, dataset, algorithm, frames):
    """The second number counts two frames of PL/Python for each of the two functions too."""
    with psycopg.connect(server_url, autocommit=True) as counting:
        counting.execute("select dbdp.about()")
        counting.execute(COUNTED)
        train = "select from dbdp.dp_logreg(%s, epsilon => 1, delta => 1e-6, algorithm => %s)"
        counting.execute(train, (dataset, algorithm))
        assert counting.execute("select pg_temp.frames()").fetchone()[0] == [frames]
