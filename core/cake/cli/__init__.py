"""The command line: one file a command group, found by the table in `app`."""
