"""A plan's numbers are the same bits for every number of threads, kernel of BLAS and set of instructions."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from short import FEW

from dbdp.algorithms import ALGORITHMS

ROWS, DIMENSION = 4000, 4
REQUESTS: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": name} | FEW.get(name, {"epochs": 2}) for name in ALGORITHMS},
    "privacy losses": {"algorithm": "dp_sgd", "clip_norm": 0.5, "step_size": 0.7, "calibration": "pld"},
    "decreasing": {
        "algorithm": "bolt_on",
        "schedule": "decreasing",
        "exponent": 0.7,
        "regularisation": 0.01,
        "averaging": "all",
    },
    "shards": {"algorithm": "bolt_on", "shards": 3, "shard_averaging": "each_epoch"},
    "Rényi": {"algorithm": "nsgd", "calibration": "rdp", "batch_size": 400},
    "worst position": {"algorithm": "nsgd", "calibration": "worst_position", "batch_size": 400},
}
MACHINES: dict[str, dict[str, str]] = {  # what is not there on a processor, or in another BLAS, is ignored
    "one thread": {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    "two threads": {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    "sixteen threads": {"OPENBLAS_NUM_THREADS": "16", "OMP_NUM_THREADS": "16", "MKL_NUM_THREADS": "16"},
    "an old processor": {"OPENBLAS_CORETYPE": "Prescott", "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"}
    | {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX2_Usable,-FMA_Usable"},
}
OTHERS = [name for name in MACHINES if name != "one thread"]
PLANS = f"""
import json, sys
import numpy as np
from dbdp.algorithms import Facts, Request, plan
from dbdp.learning.rows.column_blocks import ColumnBlock, RowBlocks
facts = Facts({ROWS}, {DIMENSION}, blocks=RowBlocks((ColumnBlock("category", {DIMENSION} - 1),), 2.0))
plans = {{
    name: plan(Request(**{{"epsilon": 2.0, "delta": 1e-6}} | options), facts).explain()
    for name, options in json.load(sys.stdin).items()
}}
terms = 1 / np.arange(1.0, 1e6)
print(json.dumps([plans, float(terms @ terms)]))
"""


@cache
def planned(machine: str) -> tuple[dict[str, dict[str, Any]], float]:
    """The plans that a process of its own makes, and a sum of squares by BLAS."""
    python = Path(sys.executable)
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", PLANS],
        input=json.dumps(REQUESTS),
        env=environment | MACHINES[machine],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


@pytest.mark.parametrize("machine", OTHERS)
def test_a_plan_is_the_same_to_the_last_bit_on_another_machine(machine):
    assert planned(machine)[0] == planned("one thread")[0]


def test_a_sum_by_blas_would_not_have_been_the_same():
    if len({planned(machine)[1] for machine in MACHINES}) == 1:
        pytest.skip("BLAS adds in one order on this machine, whatever it is set to")
