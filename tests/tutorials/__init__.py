"""The tutorials, played line by line as a reader would."""
