"""Readers of common data formats; `shoal_tasks.data_files` chooses among them."""
