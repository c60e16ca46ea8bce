"""Classes of documents, and choices among answers about them."""
