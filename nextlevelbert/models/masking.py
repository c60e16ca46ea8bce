"""Numbers of the special vectors."""

# Rows of a model's table of special vectors; a chunk vector stands where no special one does.
PAD, CLS, SEP, MASK = 0, 1, 2, 3
NOT_SPECIAL = -1
