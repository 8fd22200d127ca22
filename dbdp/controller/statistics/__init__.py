"""Statistics: noisy scores of released models, and noisy figures of a dataset itself, each charged."""
