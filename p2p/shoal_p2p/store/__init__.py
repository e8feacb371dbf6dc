"""Storage that survives a restart: the SQLite store, and the archive for export."""
