"""Generated data files and reward functions, with the results of plain Python."""
