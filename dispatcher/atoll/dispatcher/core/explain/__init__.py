"""Why a workload waits and what would help, computed on demand; decides nothing."""
