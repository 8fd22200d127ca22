"""The experiments of the five papers, measured again through the database, beside what dbdp does by default."""
