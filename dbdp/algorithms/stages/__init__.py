"""Stages after a training, for any algorithm: what one more release says of the scores of the noisy model."""
