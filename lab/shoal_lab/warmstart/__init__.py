"""The recipe that made the embedded models, and makes them again."""
