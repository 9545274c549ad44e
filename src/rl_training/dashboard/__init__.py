"""The dashboard: runs in a browser, read from their directories. Nothing here writes to a run, or changes one."""
