"""The paper's comparison, its presets and its tuning."""
