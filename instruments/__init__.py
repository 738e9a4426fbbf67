"""What is spoken to: capabilities, wires, drivers, and the simulated other end."""
