"""What it costs to learn together: text against weights."""
