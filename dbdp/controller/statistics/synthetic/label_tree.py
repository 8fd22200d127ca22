"""The structure of a model of rows: each feature depends on the label and on one other feature, its parent."""

from dataclasses import dataclass

from dbdp.controller.statistics.synthetic.pair_tables import PairTables, dependences

MOST_CELLS = 20_000  # of the table of the label, a parent and a child


@dataclass(frozen=True)
class LabelTree:
    """A forest of features, in which every feature also depends on the label."""

    order: tuple[int, ...]  # the features, each after its parent
    parents: dict[int, int]  # of the features that have one

    @property
    def is_independent(self) -> bool:
        """Whether no feature depends on another, given the label."""
        return not self.parents


def label_tree(tables: PairTables) -> LabelTree:
    """Return the forest of the largest sum of scores (Kruskal), of pairs that noise does not hide."""
    features, label = len(tables.columns) - 1, len(tables.columns) - 1
    roots, neighbours = list(range(features)), [list[int]() for _ in range(features)]
    for score, one, other in sorted(dependences(tables), reverse=True):
        cells = tables.size(one) * tables.size(other) * tables.size(label)
        if score > 0 and cells <= MOST_CELLS and roots[one] != roots[other]:
            roots = [roots[one] if root == roots[other] else root for root in roots]
            neighbours[one].append(other)
            neighbours[other].append(one)
    return _rooted(neighbours)


def _rooted(neighbours: list[list[int]]) -> LabelTree:
    """Return the forest from its edges, each tree below its feature of the most neighbours."""
    order, parents, waiting = (
        list[int](),
        dict[int, int](),
        sorted(range(len(neighbours)), key=lambda i: -len(neighbours[i])),
    )
    for start in waiting:
        found = [start] if start not in order else []
        while found:
            own = found.pop()
            order.append(own)
            children = [each for each in neighbours[own] if each not in order and each not in found]
            parents |= dict.fromkeys(children, own)
            found += children
    return LabelTree(tuple(order), parents)
