"""Records and the control area: their formats, and the processes that keep them."""
