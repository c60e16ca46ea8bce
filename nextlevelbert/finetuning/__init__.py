"""What all tasks of fine-tuning share."""
