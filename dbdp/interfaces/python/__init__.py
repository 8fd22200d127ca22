"""The Python interface: a database connection and scikit-learn estimators."""
