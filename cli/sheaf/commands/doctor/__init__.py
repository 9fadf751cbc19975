"""`sheaf doctor`."""
