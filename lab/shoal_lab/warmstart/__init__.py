"""How the embedded models were made, and can be made again."""
