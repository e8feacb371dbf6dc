"""`shoal debug`: a running node seen from outside."""
