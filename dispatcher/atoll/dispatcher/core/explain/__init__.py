"""Why a workload waits and what would help, computed when somebody asks; decides nothing."""
