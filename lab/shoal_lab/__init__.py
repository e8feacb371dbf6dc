"""The laboratory: experiments, how the embedded models are made, statistics."""

from shoal_base.children import leave_as_program

leave_as_program()
