"""The interfaces: SQL, Python, command line and web page. No mathematics."""
