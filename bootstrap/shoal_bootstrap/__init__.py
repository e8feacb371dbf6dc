"""The bootstrap peer: a stable meeting point that relays gossip and trains nothing."""

from shoal_base.children import leave_as_program

leave_as_program()
