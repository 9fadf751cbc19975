"""`sheaf leaks`."""
