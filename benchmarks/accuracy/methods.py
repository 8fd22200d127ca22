"""What is compared, and what each system claims."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from benchmarks.accuracy import ada_ssp, dp_sgd, jax_dp_sgd, peers
from benchmarks.accuracy.datasets import BINARY, CLASSES, REGRESSION, Data, Split
from benchmarks.accuracy.in_database import InDatabase
from benchmarks.accuracy.scores import Prediction
from dbdp.algorithms import ALGORITHMS

DEFAULT = "dbdp"  # with ε and δ alone
NO_PRIVACY, CONSTANT = "no-privacy", "constant"


@dataclass(frozen=True)
class Method:
    """A way to train, with the tasks it can do and what its guarantee is."""

    name: str
    evaluate: Callable[[Split, float], Iterable[Prediction]]
    tasks: tuple[str, ...]
    claim: str
    package: str = "numpy"  # that has to be installed
    private: bool = True
    arrays: bool = True  # whether it can learn from hundreds of numbers

    @property
    def is_installed(self) -> bool:
        """Return whether its package can be imported."""
        return find_spec(self.package) is not None

    def suits(self, data: Data) -> bool:
        """Return whether it can learn a table."""
        return data.task in self.tasks and (self.arrays or not data.is_array)

    def epsilons(self, data: Data) -> tuple[float | None, ...]:
        """Return every ε that it is measured at: None without privacy."""
        return data.epsilons if self.private else (None,)


ADD_REMOVE = "(ε, δ) for one row more or less, where dbdp's is for one row replaced"
ANY = (BINARY, CLASSES, REGRESSION)
SETTINGS = "settings on the test rows, which is not charged"
PEERS = (
    Method(
        "DP-EBM",
        peers.dp_ebm,
        (BINARY, REGRESSION),
        f"{ADD_REMOVE}; additive, not linear; its own defaults; noise of floating-point numbers",
        "interpret",
        arrays=False,
    ),
    Method(
        "diffprivlib",
        peers.diffprivlib,
        ANY,
        f"pure ε; for two classes the best of 4 {SETTINGS}; void as run, since the proof needs the exact minimum and "
        "L-BFGS stops before it; numbers: void for columns with a bound of 0 (its issue 104), so that all were moved "
        "to [-1, 1]",
        "diffprivlib",
    ),
    Method("DP-SGD", partial(dp_sgd.grid, accountant=dp_sgd.replaced), ANY, f"dbdp's; the best of 24 {SETTINGS}"),
    Method(
        "DP-SGD-add-remove",
        partial(dp_sgd.grid, accountant=dp_sgd.added),
        ANY,
        f"{ADD_REMOVE}; the best of 24 {SETTINGS}",
        "dp_accounting",
    ),
    Method(
        "JAX-Privacy",
        jax_dp_sgd.grid,
        ANY,
        f"dbdp's, by dp_accounting's privacy loss distribution; the best of 24 {SETTINGS}; noise of floating-point "
        "numbers from a seed of 31 bits",
        "jax_privacy",
    ),
    Method("AdaSSP", ada_ssp.ada_ssp, (REGRESSION,), f"{ADD_REMOVE}; proved for ε ≤ 1"),
    Method(
        "BoostedAdaSSP",
        ada_ssp.boosted,
        (REGRESSION,),
        f"{ADD_REMOVE}; the paper's settings; written from the paper: its authors' code scales noise by μ, not 1/μ, "
        "so that its claim is void",
    ),
    Method(
        "BoostedAdaSSP-tuned",
        ada_ssp.tuned,
        (REGRESSION,),
        f"dbdp's: noise for one row replaced; the best of 9 {SETTINGS}",
    ),
)
REFERENCES = (
    Method(NO_PRIVACY, peers.no_privacy, ANY, "none: the best linear model", private=False),
    Method(CONSTANT, peers.constant, ANY, "none: the larger class, or the mean", private=False),
)
DBDP_CLAIM = "(ε, δ) for one row replaced; only ε and δ are set"


def own(server: InDatabase) -> tuple[Method, ...]:
    """Return dbdp with its default, with pairs of columns, and with each algorithm by name."""
    default = Method(DEFAULT, server.evaluate, ANY, DBDP_CLAIM)
    paired = Method(f"{DEFAULT}:pairs", partial(server.evaluate, pairs="auto"), ANY, DBDP_CLAIM, arrays=False)
    named = (
        Method(f"{DEFAULT}:{name}", partial(server.evaluate, algorithm=name), ANY, DBDP_CLAIM) for name in ALGORITHMS
    )
    return default, paired, *named


def chosen(methods: Iterable[Method], names: list[str] | None) -> list[Method]:
    """Return the methods of these names, in this order; without names dbdp's default and every other system.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    by_name = {method.name: method for method in methods}
    if unknown := [name for name in names or () if name not in by_name]:
        raise ValueError(f"there is no method {', '.join(unknown)}: use {', '.join(by_name)}")
    return [by_name[name] for name in names or by_name if names or not name.startswith(f"{DEFAULT}:")]
