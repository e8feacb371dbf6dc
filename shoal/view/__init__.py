"""One node as people see it: the model behind the terminal, the page, metrics and health."""
