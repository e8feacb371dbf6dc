"""What commands print with --json, as types: the JSON schemas are generated from them."""
