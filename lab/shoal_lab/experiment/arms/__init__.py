"""The presets' arms, and the figures that each preset reads from their runs."""
