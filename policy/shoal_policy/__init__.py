"""The trainer: owns the model and runs its rounds. Synchronous torch; never Trio or libp2p."""

from shoal_base.children import leave_as_program

leave_as_program()
