"""Everything that the privacy guarantee rests on: sensitivity, mechanisms, accounting. No learning, no SQL."""
