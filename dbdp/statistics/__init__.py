"""Private statistics of a dataset's declared columns: what is counted, how far a record moves it, and its figures."""
