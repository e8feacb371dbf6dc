"""Readers of the forms in which people have data; `shoal_tasks.data_files` chooses among them."""
