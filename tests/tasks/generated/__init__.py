"""Generated data files and reward functions, and what plain Python makes of them."""
