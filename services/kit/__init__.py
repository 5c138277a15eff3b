"""The parts that all services stand on: submissions, the loop, checkpoints."""
