"""The page of `nextlevelbert app`, which needs the extra `app`."""
