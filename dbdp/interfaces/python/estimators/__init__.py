"""scikit-learn estimators: each fit releases one private model, of a registered dataset or of the caller's rows."""
