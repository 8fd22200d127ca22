"""The SQL interface: functions and aggregates that PL/Python bodies call. The standard library and NumPy only."""
