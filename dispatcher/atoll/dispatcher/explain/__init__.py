"""Why a workload waits and what would help, on demand: it asks the core, which knows nothing of it; decides nothing."""
