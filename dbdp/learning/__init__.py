"""Losses, schedules, packed rows, and the training kernels. No privacy, no SQL."""
