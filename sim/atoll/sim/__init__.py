"""The simulator: the production dispatcher core and the production member placement in virtual time.

Only their surroundings are simulated: the API server, the delays of writes and reports, pods that run.
May import everything below `local`; nothing but `local` and `cli` may import it. `simulation.run` is the way in,
`replay` decides a recorded log again.
"""

from __future__ import annotations
