"""Sheaf's command line: run programs on Sheaf and show what its caches do."""
