"""The presets' arms, and what each preset reads out of their runs."""
