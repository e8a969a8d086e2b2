"""Every API that Atoll serves, one module per API group, and the CRDs generated from them.

May be imported by every other package; imports nothing of Atoll itself.
What leaves: pydantic models with their place in the API server (`models.KINDS`, `models.kind_of`), and what processes
and installers read without them: `shipped.load_crds()`, `lifecycle` and `effects`.
"""
