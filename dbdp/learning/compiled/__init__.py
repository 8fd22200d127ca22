"""The compiled training kernels, and functions with which the NumPy reference computes as they do."""
