"""How the decisions of a model of several classes become probabilities, from the model's receipt."""

from typing import Any

_SOFTMAX, _LOGISTIC = "cross_entropy", "logistic"  # the loss of a network, and of a linear model with probabilities


def loss_of(receipt: dict[str, Any]) -> str | None:
    """Return the loss that a model was trained with; None if its receipt has none."""
    loss: str | None = _training(receipt).get("loss")
    return loss


def exist(receipt: dict[str, Any]) -> bool:
    """Return whether the loss gives probabilities."""
    return loss_of(receipt) in (_SOFTMAX, _LOGISTIC)


def are_softmax(receipt: dict[str, Any]) -> bool:
    """Return whether the classes were learned together, by softmax; else each was learned against the rest."""
    training = _training(receipt)
    is_joint = training.get("algorithm") == "preconditioned_gd" or training.get("classes") == "softmax"
    return is_joint or loss_of(receipt) == _SOFTMAX


def _training(receipt: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of the model's training: of a tuning that of the chosen candidate, else the receipt itself."""
    plans = receipt.get("plans")
    training: dict[str, Any] = plans[receipt.get("chosen") or 0] if plans else receipt
    return training
