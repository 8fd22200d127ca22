"""The pages, and what they do."""
