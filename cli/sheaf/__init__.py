"""Sheaf's command line: run programs on Sheaf and look at what its caches do."""
