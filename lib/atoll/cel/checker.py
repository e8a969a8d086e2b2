"""The static checker: gives each node its type and each call the overloads that may run."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.cel.declarations import FUNCTIONS, Overload
from atoll.cel.errors import CompileError
from atoll.cel.syntax import Node, UInt
from atoll.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    UINT,
    Substitution,
    Type,
    assignable,
    general,
    parse_types,
    substitute,
)  # fmt: skip

_LITERALS: Mapping[type, Type] = {
    bool: BOOL, int: INT, UInt: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL,
}  # fmt: skip
_NAMES = ("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint")
_KEYS = frozenset({"bool", "int", "uint", "string", "dyn", "any"})
_NAMESPACES = frozenset({"optional", "sets", "lists", "ip", "format"})


def check(root: Node, *, list_attributes: bool) -> None:
    """Type a tree in place.

    Raises:
        CompileError: a name, type or call is not valid, or the result neither bool nor an attribute.
    """
    checker = _Checker(DYN if list_attributes else ANY)
    checker.check(root)
    result = substitute(checker.known, root.type, close=True)
    if result not in (BOOL, ANY) and not (list_attributes and result == DYN):
        raise CompileError(f"the result must be bool or an attribute, not {result}", 1)
    checker.same_elements(root)


class _Checker:
    def __init__(self, attribute: Type) -> None:
        self.known: Substitution = {}
        self.fresh = 0
        [capacity] = parse_types("map(string, map(string, Quantity))")
        self.fields = {
            "driver": STRING, "allowMultipleAllocations": BOOL, "capacity": capacity,
            "attributes": Type("map", (STRING, Type("map", (STRING, attribute)))),
        }  # fmt: skip
        self.scope: dict[str, Type] = {name: Type("type", (Type(name),)) for name in _NAMES}
        self.scope["device"] = Type("Device")

    def variable(self) -> Type:
        self.fresh += 1
        return Type(f"$_{self.fresh}")

    def check(self, node: Node) -> Type:
        node.type = getattr(self, f"check_{node.kind}")(node)
        return node.type  # type: ignore[no-any-return]

    def resolved(self, node: Node) -> Type:
        return substitute(self.known, node.type)

    def check_const(self, node: Node) -> Type:
        return _LITERALS[type(node.value)]

    def check_ident(self, node: Node) -> Type:
        if node.name not in self.scope:
            raise CompileError(f"{node.name!r} is not known here", node.column)
        return self.scope[node.name]

    def check_select(self, node: Node) -> Type:
        [operand] = node.args
        self.check(operand)
        type_ = self.resolved(operand)
        optional = type_.name == "optional"
        if optional:
            [type_] = type_.params
        if type_.name == "map":
            found = type_.params[1]
        elif type_.name == "Device":
            if node.name not in self.fields:
                raise CompileError(
                    f"a device has no field {node.name!r}: {', '.join(sorted(self.fields))}", node.column
                )
            found = self.fields[node.name]
        elif type_.is_dyn or type_.name[0] == "$":
            found = DYN
        else:
            raise CompileError(f"{type_} has no fields", node.column)
        return Type("optional", (found,)) if optional or node.flag else found

    def check_has(self, node: Node) -> Type:
        self.check_select(node)
        return BOOL

    def check_and(self, node: Node) -> Type:
        for each in node.args:
            if not assignable(self.known, (self.check(each),), (BOOL,)):
                raise CompileError(f"must be bool, not {self.resolved(each)}", each.column)
        return BOOL

    check_or = check_and

    def check_if(self, node: Node) -> Type:
        condition, yes, no = node.args
        self.expect(condition, BOOL)
        self.check(yes)
        self.check(no)
        result = self.variable()
        if not assignable(self.known, (yes.type, no.type), (result, result)):
            raise CompileError(f"the two results must be of one type, not {self.shown(yes, no)}", node.column)
        return substitute(self.known, result)

    def expect(self, node: Node, type_: Type) -> None:
        if not assignable(self.known, (self.check(node),), (type_,)):
            raise CompileError(f"must be {type_}, not {substitute(self.known, node.type, close=True)}", node.column)

    def shown(self, *nodes: Node) -> str:
        return ", ".join(str(substitute(self.known, each.type, close=True)) for each in nodes)

    def check_call(self, node: Node) -> Type:
        name, args = node.name, node.args
        if (
            node.flag
            and args[0].kind == "ident"
            and args[0].name in _NAMESPACES
            and f"{args[0].name}.{name}" in FUNCTIONS
        ):
            node.name = name = f"{args[0].name}.{name}"
            node.args, node.flag = args[1:], False
        for each in node.args:
            self.check(each)
        if name not in FUNCTIONS:
            raise CompileError(f"there is no function {name!r}", node.column)
        types = tuple(each.type for each in node.args)
        found: list[Overload] = []
        result: Type | None = None
        for overload in FUNCTIONS[name]:
            if overload.member != node.flag or len(overload.args) != len(types):
                continue
            own: Substitution = {}
            wanted = tuple(self.renew(each, own) for each in overload.args)
            if not assignable(self.known, types, wanted):
                continue
            found.append(overload)
            gives = substitute(self.known, self.renew(overload.result, own))
            if result is None:
                result = gives
            elif not result.is_dyn and gives != result:
                result = DYN
        if result is None:
            raise CompileError(f"{name} does not take ({self.shown(*node.args)})", node.column)
        node.overloads = tuple(found)
        return result

    def renew(self, type_: Type, own: Substitution) -> Type:
        """The type with variables of this call's own."""
        if type_.name[0] == "$":
            return own.setdefault(type_.name, self.variable()) if type_.name not in own else own[type_.name]
        return Type(type_.name, tuple(self.renew(each, own) for each in type_.params)) if type_.params else type_

    def join(self, types: list[Type]) -> Type:
        joined = types[0] if types else self.variable()
        for each in types[1:]:
            joined = general(joined, each) if assignable(self.known, (joined,), (each,)) else DYN
        return joined

    def element(self, node: Node, *, optional: bool) -> Type:
        type_ = self.check(node)
        if optional:
            if type_.name == "optional":
                return type_.params[0]
            if not type_.is_dyn:
                raise CompileError(f"must be optional, not {type_}", node.column)
        return type_

    def check_list(self, node: Node) -> Type:
        return Type(
            "list", (self.join([self.element(each, optional=at in node.value) for at, each in enumerate(node.args)]),)
        )

    def check_map(self, node: Node) -> Type:
        types = [self.element(each, optional=at in node.value) for at, each in enumerate(node.args)]
        # A free variable as a key becomes dyn: types would double in size with each level otherwise.
        keys = [DYN if (key := substitute(self.known, each)).name[0] == "$" else key for each in types[::2]]
        for key, key_node in zip(keys, node.args[::2], strict=True):
            if key.name not in _KEYS:
                raise CompileError(
                    f"{substitute(self.known, key, close=True)} can't be the key of a map", key_node.column
                )
        return Type("map", (self.join(keys) if keys else DYN, self.join(types[1::2])))

    def check_bind(self, node: Node) -> Type:
        value, body = node.args
        self.check(value)
        return self.within(node, body, (value.type,))

    def within(self, node: Node, body: Node, types: tuple[Type, ...], wanted: Type | None = None) -> Type:
        """Check a part with the node's variables in scope."""
        outer = self.scope
        self.scope = {**outer, **dict(zip(node.variables, types, strict=True))}
        if wanted is None:
            self.check(body)
        else:
            self.expect(body, wanted)
        self.scope = outer
        return self.resolved(body)

    def check_fold(self, node: Node) -> Type:
        target, *body = node.args
        self.check(target)
        range_ = self.resolved(target)
        if node.name in ("optMap", "optFlatMap"):
            [value] = range_.params if range_.name == "optional" else (DYN,)
            if range_.name != "optional" and not range_.is_dyn:
                raise CompileError(f"{node.name} is a method of optional values, not of {range_}", node.column)
            found = self.within(node, body[0], (value,))
            if node.name == "optFlatMap" and found.name != "optional" and not found.is_dyn:
                raise CompileError(f"must be optional, not {found}", body[0].column)
            return found if node.name == "optFlatMap" else Type("optional", (found,))
        pair = len(node.variables) == 2
        if range_.name == "list":
            types = (INT, *range_.params) if pair else range_.params
        elif range_.name == "map":
            types = range_.params if pair else range_.params[:1]
        elif range_.name == "dyn" or range_.name[0] == "$":
            types = (DYN, DYN) if pair else (DYN,)
        else:
            raise CompileError(f"{node.name} goes over a list or map, not over {range_}", node.column)
        if node.name in ("all", "exists", "existsOne", "filter"):
            self.within(node, body[0], types, BOOL)
            return Type("list", types) if node.name == "filter" else BOOL
        if len(body) == 2:
            self.within(node, body[0], types, BOOL)
        found = self.within(node, body[-1], types)
        if node.name == "sortBy":
            return Type("list", types)
        if node.name == "transformMap":
            return Type("map", (types[0], found))
        return Type("list", (found,))

    def same_elements(self, node: Node) -> None:
        """Refuse lists and maps of mixed types, arguments of `format` excepted."""
        if node.kind == "call" and node.name == "format":
            return
        if node.kind in ("list", "map"):
            step = 1 if node.kind == "list" else 2
            for start in range(step):
                first: Type | None = None
                for at in range(start, len(node.args), step):
                    type_ = substitute(self.known, node.args[at].type, close=True)
                    if at in node.value:
                        type_ = type_.params[0] if type_.params else type_
                    if first is not None and type_ != first:
                        raise CompileError(f"must be {first} as the one before, not {type_}", node.args[at].column)
                    first = type_
        for each in node.args:
            self.same_elements(each)
