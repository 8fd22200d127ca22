"""The form in which results are shown: rows and JSON, with a plan's warning as PostgreSQL's."""

from dbdp.interfaces.sql.boundary import session  # isort: split

import json
from typing import Any

from dbdp.algorithms.settings import NOISE_WINS
from dbdp.registry.results.models import ReleasedModel


def released(model: ReleasedModel) -> dict[str, Any]:
    """Return what is shown of a model at once; `dbdp.receipt` and `dbdp.weights` have the rest."""
    receipt = model.receipt
    _warn(receipt)
    return {
        "model": model.id,
        "version": model.name,
        "algorithm": receipt["algorithm"],
        "epsilon": receipt["epsilon"],
        "delta": receipt["delta"],
        "noisy": _is_noisy(receipt),
    }


def _is_noisy(receipt: dict[str, Any]) -> bool | None:
    """Return whether the plan expects noise to win over what a model learns; None for networks, which have no rule."""
    plan = receipt["plans"][receipt["chosen"]] if "chosen" in receipt else receipt
    return None if "network" in plan else NOISE_WINS in plan.get("warning", "")


def _warn(plan: dict[str, Any]) -> None:
    """Show the caller a plan's warning, which is from public facts."""
    if "warning" in plan:
        session.warn(plan["warning"])


def shown(plan: dict[str, Any]) -> str:
    """Return a plan, or a score, as JSON; its warning, from public facts, is shown to the caller too."""
    _warn(plan)
    return in_lines(plan)


def in_lines(value: Any, depth: int = 1) -> str:
    """Write JSON with a line for each entry of an object and each object of a list, as psql then shows it."""
    if isinstance(value, dict):
        items = [f"{json.dumps(name, ensure_ascii=False)}: {in_lines(each, depth + 1)}" for name, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        items = [in_lines(each, depth + 1) for each in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return first + f",\n{' ' * depth}".join(items) + last
