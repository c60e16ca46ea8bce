"""What pretraining and fine-tuning share."""
