"""What is learned: losses, schedules, the packed block, the kernels. No privacy, no SQL."""
