"""Options that make noisy trainings short: few updates, searches or generations."""

from typing import Any

from dbdp.algorithms import NOISY_WHILE_TRAINING

EPOCHS, STEPS = {"epochs": 2}, {"settings": '{"planned_steps": 4}'}
FEW: dict[str, dict[str, Any]] = {
    **{name: EPOCHS for name in ("scs13", "bst14", "dp_sgd", "dp_adam", "sgd_adv", "rrpsgd")},
    **{name: STEPS for name in ("dp_blsgd", "dp_blgd", "dp_blsgd_ac")},
    "dp_agd": {"settings": '{"splits": 4}'},
    "preconditioned_gd": {"settings": '{"passes": 4}'},
    "private_splines": {"settings": '{"passes": 4}'},
    "objective_perturbation": {"regularisation": 0.1, "settings": '{"evaluation_share": 0.1}'},
    "privgene": {"settings": '{"generations": 4, "population": 20}'},
    "majority": {},
    "naive_bayes": {},
}
OF_COLUMNS = ("private_splines", "naive_bayes")  # which do not train on an array
assert set(FEW) == set(NOISY_WHILE_TRAINING)
