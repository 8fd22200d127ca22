"""Losses, schedules, objectives and their clipped gradients, packed rows, training kernels. No privacy, no SQL."""
