"""The distribution on a label tree that is nearest to independence, and within noise of a summary's tables.

It has a weight λ for each cell of each table that is fitted: of the label, of each feature, of (label, child) and of
(parent, child). Of all distributions p it has the least KL(p, independence) + Σ (p's table - noisy table)²/(2·PULL·σ),
over the cells with noise of deviation σ. The dual is smooth and convex in λ: log Z(λ) - ⟨λ, tables⟩ + PULL·Σσλ²/2, with
the gradient p's tables - noisy tables + PULL·σλ. Given the label, features are a forest, so that one pass up and one
down give log Z and all tables (belief propagation). Shapes: the label has K levels, a feature K_c.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbdp.controller.statistics.synthetic.label_tree import LabelTree
from dbdp.controller.statistics.synthetic.minimising import minimised
from dbdp.controller.statistics.synthetic.pair_tables import NoisyTable, PairTables

PULL = 0.3  # towards independence: a cell is off by this part of its noise for each factor of e
_LEAST = 1e-12  # share of a level that noise hides

Key = tuple[int, ...]  # the columns of a table
Tables = dict[Key, np.ndarray]


@dataclass(frozen=True)
class Conditionals:
    """A distribution of rows: that of the label, and of each feature given the label and its parent."""

    label: np.ndarray  # shape (K,)
    features: dict[int, np.ndarray]  # shapes (K, K_c), or (K, K_p, K_c) with a parent
    partition: float  # log Z


@dataclass(frozen=True)
class TreeModel:
    """Distributions on a label tree, by the weights of the cells of its tables."""

    tree: LabelTree
    label: int  # the label's column
    targets: dict[Key, NoisyTable]

    @classmethod
    def of(cls, tables: PairTables, tree: LabelTree) -> "TreeModel":
        """Return the model of a tree and the noisy tables of its edges, columns and label."""
        label = len(tables.columns) - 1
        pairs = [(label, child) for child in tree.order] + [(parent, child) for child, parent in tree.parents.items()]
        targets: dict[Key, NoisyTable] = {(column,): table for column, table in enumerate(tables.singles)}
        return cls(tree, label, targets | {pair: tables.of(*pair) for pair in pairs})

    @cached_property
    def shares(self) -> np.ndarray:
        """The noisy tables, one after another."""
        return np.concatenate([table.shares.ravel() for table in self.targets.values()])

    @cached_property
    def pulls(self) -> np.ndarray:
        """The factor of λ²/2 for each cell."""
        return PULL * np.concatenate([table.deviations.ravel() for table in self.targets.values()])

    @cached_property
    def independent(self) -> Tables:
        """The logarithms of the shares of each column, as far as noise shows them."""
        singles = {key: table for key, table in self.targets.items() if len(key) == 1}
        return {key: np.log(np.maximum(each.shares, each.deviations / 2) + _LEAST) for key, each in singles.items()}

    def fitted(self) -> Conditionals:
        """Return the distribution that is nearest to independence and to the tables."""
        return self.conditionals(minimised(self.dual, np.zeros(len(self.shares))))

    def dual(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the dual at λ, and its gradient."""
        found = self.conditionals(weights)
        tables = self.tables(found)
        gradient = np.concatenate([tables[key].ravel() for key in self.targets]) - self.shares
        value = found.partition - weights @ self.shares + self.pulls @ weights**2 / 2
        return float(value), gradient + self.pulls * weights

    def potentials(self, weights: np.ndarray) -> Tables:
        """Return λ as tables, and those of single columns with independence."""
        found, end = Tables(), 0
        for key, table in self.targets.items():
            start, end = end, end + table.shares.size
            found[key] = weights[start:end].reshape(table.shares.shape)
        return found | {key: found[key] + each for key, each in self.independent.items()}

    def conditionals(self, weights: np.ndarray) -> Conditionals:
        """Return the distribution: the pass from the leaves to the label."""
        potentials = self.potentials(weights)
        own = {child: potentials[child,] + potentials[self.label, child] for child in self.tree.order}
        label, features = potentials[self.label,].copy(), dict[int, np.ndarray]()
        for child in reversed(self.tree.order):
            parent = self.tree.parents.get(child)
            joint = own[child] if parent is None else own[child][:, None, :] + potentials[parent, child]
            features[child], message = _normalised(joint)
            if parent is None:
                label += message
            else:
                own[parent] = own[parent] + message
        shares, partition = _normalised(label)
        return Conditionals(shares, features, float(partition))

    def tables(self, found: Conditionals) -> Tables:
        """Return the tables of a distribution: the pass from the label to the leaves."""
        tables: Tables = {(self.label,): found.label}
        for child in self.tree.order:
            parent = self.tree.parents.get(child)
            if parent is None:
                tables[self.label, child] = found.label[:, None] * found.features[child]
            else:
                joint = tables[self.label, parent][:, :, None] * found.features[child]
                tables[self.label, child], tables[parent, child] = joint.sum(axis=1), joint.sum(axis=0)
            tables[child,] = tables[self.label, child].sum(axis=0)
        return tables


def _normalised(logarithms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return shares that add up to 1 along the last axis, and the logarithms of the sums before."""
    largest = logarithms.max(axis=-1, keepdims=True)
    shares = np.exp(logarithms - largest)
    totals = shares.sum(axis=-1, keepdims=True)
    return shares / totals, (largest + np.log(totals))[..., 0]
