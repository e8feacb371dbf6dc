"""`shoal judge report`: summarises a judge's records."""
