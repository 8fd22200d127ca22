"""The web page for data owners and analysts, on this machine only.

A browser gets a session by a one-time link. Each request opens a connection of the role that `dbdp web` was started
with, so that row-level security decides what the page shows. It is read-only unless a form changes something, and no
row reaches this process: what reads rows runs in the server.
"""
