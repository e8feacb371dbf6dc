"""The trainer: owns the model and plays its rounds. Synchronous torch; never Trio or libp2p."""
