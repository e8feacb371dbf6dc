"""Generated protobuf modules (`make proto`). Only `shoal_wire.codec` and its kin import them."""
