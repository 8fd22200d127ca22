"""Private scores of a released model, and private counts of a dataset."""
