"""A scikit-learn estimator of networks with hidden layers."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from dbdp.algorithms import Request, words
from dbdp.interfaces.python.estimators.design import numbers_of
from dbdp.interfaces.python.estimators.linear import Probabilistic
from dbdp.interfaces.python.keywords import OF_CLASSES, initialiser
from dbdp.registry.results import network_models
from dbdp.registry.results.models import ReleasedModel

if TYPE_CHECKING:
    from dbdp.interfaces.python.keywords import OfNetworks

_OF_NETWORKS = OF_CLASSES | {
    "model": "network_ : dict\n"
    "        The layers, as dbdp.model describes them.\n"
    "    parameters_ : array, shape (P,)\n"
    "        Weights and biases of all layers.",
    "label": "hidden_layer_sizes : sequence of int\n"
    "        Units of each hidden layer. Noise grows with the number of parameters: small layers learn more.\n"
    f"    {OF_CLASSES['label']}",
}
_LINEAR_ONLY = (
    *("huber_width", "positive_weight", "projection_dimension", "projection_seed", "summary"),
    *("pairs", "pair_cells", "monotone"),
)


class MLPClassifier(Probabilistic):
    """A network with hidden layers of rectified linear units. Noise is added to its gradients, which needs δ > 0."""

    loss = "logistic"
    _explained = _OF_NETWORKS
    _synonyms: ClassVar[dict[str, str]] = words.SYNONYMS | {
        "max_iter": "epochs",
        "learning_rate_init": "step_size",
    }
    _order: np.ndarray | None = None
    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[OfNetworks]) -> None: ...
    else:
        __init__ = initialiser(__name__, "classes", without=_LINEAR_ONLY, hidden_layer_sizes=(32,))

    @property
    def request(self) -> Request:
        """The parameters as a `dbdp.Request`, which every interface uses."""
        sizes = self.get_params(deep=False)["hidden_layer_sizes"]
        if isinstance(sizes, str) or not len(np.atleast_1d(sizes)):
            raise ValueError(f"hidden_layer_sizes = {sizes!r}; pass the units of each layer, such as (32,)")
        named = ",".join(str(size) for size in np.atleast_1d(sizes).tolist())
        return replace(super().request, network=f"mlp:{named}")

    @property
    def _is_softmax(self) -> bool:
        return True

    def _set_model(self, model: ReleasedModel) -> None:
        self.network_, self.parameters_ = model.network or {}, np.array(model.parameters)
        self._order = None

    def _sort_outputs(self, order: np.ndarray) -> None:
        self._order = order

    def _decisions(self, rows: np.ndarray) -> np.ndarray:
        network, projection = network_models.parsed(self.network_)
        packed = network_models.packed(self.declaration_, numbers_of(self.declaration_, rows), projection)
        scores = network.scores(self.parameters_, packed)
        return scores if self._order is None else scores[:, self._order]
