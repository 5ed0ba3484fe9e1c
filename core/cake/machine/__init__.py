"""The abstract GPU: a run of a kernel instance read as facts, values or time. Entry: `engine.run`."""
