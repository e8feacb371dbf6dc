"""The view model of a node, behind terminal, page, metrics and health checks."""
