"""What jobs left, as tables and figures."""
