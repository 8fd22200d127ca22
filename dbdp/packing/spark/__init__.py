"""Packed rows on Apache Spark: the same order, kernels and interface as over SQL, in a cluster's executors."""
