"""A real GPU: launch, check and time compiled kernels. Needs numpy, ml_dtypes and cuda-bindings alone."""
