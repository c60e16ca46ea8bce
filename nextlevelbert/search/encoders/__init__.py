"""What encodes the texts and questions of a search: a static table, or a model in torch."""
