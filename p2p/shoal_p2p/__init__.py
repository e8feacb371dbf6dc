"""The node process: Trio and py-libp2p, never torch."""

from shoal_base.children import leave_as_program

leave_as_program()
