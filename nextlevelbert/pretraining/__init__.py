"""From documents to a pretrained checkpoint."""
