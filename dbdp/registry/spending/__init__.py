"""What is spent of a budget, by whom, and what is left."""
