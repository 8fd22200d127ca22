"""Several trainings for one charge: tuning and groups."""
