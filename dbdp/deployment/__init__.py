"""Deployment: installs the extension, runs a private server, and checks what a server lacks."""
