"""Bytes of strangers, damaged by the million, into every reader of them."""
