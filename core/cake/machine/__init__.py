"""The abstract GPU: one run of a kernel instance, read as facts, values or time. Entry: `machine.engine.run`."""
