"""Does sharing help? The paper's comparison, on one machine, by the code that nodes run."""
