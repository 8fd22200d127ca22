"""Who is signed in, and the connections of those who are."""
