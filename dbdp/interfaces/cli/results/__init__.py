"""Commands that release scores and statistics, or show them."""
