"""The loop that evolves kernels, as a LangGraph state graph."""
