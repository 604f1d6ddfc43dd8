"""The command line: `main`, a module for each command, and what they share."""
