"""Several trainings for one charge: tuning, and one model for each group."""
