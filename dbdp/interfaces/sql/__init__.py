"""The SQL interface: functions, aggregates and predictions (`scoring`), by the standard library and NumPy only."""
