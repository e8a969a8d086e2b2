"""CEL for device selectors: the language of DeviceClasses and ResourceClaims, evaluated here.

`compile` gives a `Selector` or raises `CompileError`; `Selector.matches` takes a `DeviceView` and answers, or raises
`EvaluationError`. Nothing else is raised, whatever a tenant writes: text, nesting, work and patterns are bounded.
Steps: syntax -> checker (types) -> evaluator (closures, cost); the functions are declared by subject. Kubernetes'
answers are pinned by the conformance suite `dra-cel`.
"""

from atoll.cel.errors import CompileError, EvaluationError
from atoll.cel.selector import DeviceView, Selector, compile

__all__ = ["CompileError", "DeviceView", "EvaluationError", "Selector", "compile"]
