"""The doctor's checks, by subject: each reads the facts of a `Seen` and yields findings. Pure."""
