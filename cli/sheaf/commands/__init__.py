"""The subcommands of `sheaf`."""
