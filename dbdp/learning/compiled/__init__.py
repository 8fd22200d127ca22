"""The compiled training kernels, and functions with which NumPy computes as they do."""
