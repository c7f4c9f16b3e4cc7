"""Group coordination as a machine without clock or socket."""
