"""Where SQL runs; alone knows plpy and psycopg."""
