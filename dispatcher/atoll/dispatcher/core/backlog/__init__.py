"""The workloads that wait: one binding, their order, what each waits for and what wakes it."""
