"""What a reviewer reads: sensitivity, mechanisms, accounting. No learning, no SQL."""
