"""Heap profiles: call stacks of sampled allocations, read from records and shown in several views and formats."""
