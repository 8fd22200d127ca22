"""The command line: `places` names the module of each command."""
