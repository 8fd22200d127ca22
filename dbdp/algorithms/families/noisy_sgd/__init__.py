"""SGD algorithms that add noise to every update."""
