"""SQL, Python, command line, web page: no mathematics."""
