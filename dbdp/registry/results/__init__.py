"""Results: released models and summaries, in the units of the columns, as the database stores and reports them."""
