"""Readers of books: HTML, EPUB, PDF and Word files."""
