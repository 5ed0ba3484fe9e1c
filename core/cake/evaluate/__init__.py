"""The ladder that judges candidates, the worker that runs it, and the backends."""
