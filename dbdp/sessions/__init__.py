"""Sessions: where SQL runs. Only this folder knows whether plpy or psycopg runs it."""
