"""Jobs played: in memory, or as real processes."""
