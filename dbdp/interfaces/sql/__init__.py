"""The SQL interface: functions that PL/Python bodies call. The standard library and NumPy only."""
