"""Questions over several documents."""
