"""Where texts come from, and rows of tasks."""
