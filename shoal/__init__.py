"""The face of the program: `shoal`, its commands, and the simulated network that some run on."""

from shoal_base.children import leave_as_program

leave_as_program()
