"""The trainer: owns the model. Synchronous torch; never Trio or libp2p."""
