"""Whether two documents belong together."""
