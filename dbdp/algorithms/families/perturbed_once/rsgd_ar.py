"""RSGD-AR: NSGD that restarts every τ epochs from the mean of the iterates since the last restart.

Chen, Lee & Kifer 2019, Algorithm 3, as privacy.md §3 corrects it: the next update starts from the mean,
the Lipschitz constant excludes the regulariser, and the worst position need not be the last one.
"""

from dbdp import checks
from dbdp.algorithms import settings
from dbdp.algorithms.declared_options import Options, anything
from dbdp.algorithms.families.perturbed_once.nsgd import RESTARTED, restarted_learning
from dbdp.algorithms.families.perturbed_once.shared import PerturbedOnce, planned
from dbdp.algorithms.plan import Facts, Request

DEFAULT_INTERVAL = 5  # epochs
OPTIONS = Options(RESTARTED | anything("averaging_interval"))


def rsgd_ar_plan(request: Request, facts: Facts) -> PerturbedOnce:
    """Return the plan of an RSGD-AR release."""
    interval = DEFAULT_INTERVAL if request.averaging_interval is None else request.averaging_interval
    checks.whole("averaging_interval", interval, 1, settings.MAX_EPOCHS, "epochs between restarts")
    return planned(request, facts, restarted_learning(request, facts, interval=interval), calibration="hockey_stick")
