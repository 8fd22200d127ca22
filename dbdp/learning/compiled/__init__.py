"""The compiled kernels, and the arithmetic that they share with NumPy."""
