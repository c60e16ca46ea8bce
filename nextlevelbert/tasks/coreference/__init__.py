"""Mentions of one event or thing across documents."""
