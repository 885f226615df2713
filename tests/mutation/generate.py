"""A module's source becomes mutants: copies in which one expression or statement is changed.

    generate("if a < b: f(a, x=1)") -> "if a <= b: …", "if a >= b: …", "… pass", "… f(a)", "… f(a, x=2)"

What is not changed: annotations, decorators, strings and what is inside f-strings (messages are not pinned word by
word), code for type checkers, and lines marked `# no mutant: REASON`, which are counted in the report.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
# Arguments that guard against mistakes in the code, not in the data.
_GUARDS = ("strict",)
_MARK = re.compile(r"#\s*no mutant: (?P<reason>.+)")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed place. `number` counts within the module, and names it for as long as the module is the same.

    `lines` are those that run when the place does; none if that is when the module is imported.
    """

    number: int
    line: int
    lines: frozenset[int]
    what: str
    source: str


def generate(source: str) -> list[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(source)
    excused = excused_lines(source)
    found: list[Mutant] = []
    for target, lines in _targets(tree, frozenset()):
        if target.lineno in excused:
            continue
        before = _snippet(target)
        for changed in _changes(target):
            text = ast.unparse(ast.fix_missing_locations(_replaced(tree, target, changed)))
            found.append(Mutant(len(found), target.lineno, lines, f"{before}  ->  {_snippet(changed)}", text))
    return found


def excused_lines(source: str) -> dict[int, str]:
    """Line -> why its mutants do not count."""
    lines = enumerate(source.splitlines(), 1)
    return {number: match["reason"] for number, line in lines if (match := _MARK.search(line))}


def _snippet(node: ast.AST) -> str:
    return ast.unparse(node).split("\n")[0][:100]


Place = ast.expr | ast.stmt


Lines = frozenset[int]


def _targets(parent: ast.AST, lines: Lines, *, called: bool = False) -> Iterator[tuple[Place, Lines]]:
    """Every expression and statement that may be changed, with the lines that run when it does.

    `called`: it runs when a function is called, not when the module is imported.
    """
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.JoinedStr) or _is_docstring(node) or _is_for_type_checkers(node):
            continue
        runs = called or (isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and node in parent.body)
        here = _own_lines(node) | (frozenset() if isinstance(node, ast.stmt) else lines) if runs else frozenset()
        if isinstance(node, ast.expr | ast.stmt) and hasattr(node, "lineno"):  # which a stand-in has not
            yield node, here
        yield from _targets(_without_annotations(node), here, called=runs or isinstance(node, ast.Lambda))


def _own_lines(node: ast.AST) -> Lines:
    """Of a statement with a body, that is the line of its head."""
    if not isinstance(node, ast.expr | ast.stmt) or not hasattr(node, "lineno"):
        return frozenset()
    is_compound = hasattr(node, "body") and isinstance(node, ast.stmt)
    last = node.lineno if is_compound or node.end_lineno is None else node.end_lineno
    return frozenset(range(node.lineno, last + 1))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_type_checkers(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)
    if isinstance(node, ast.ClassDef):
        return any(isinstance(b, ast.Name) and b.id == "Protocol" for b in node.bases)
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _without_annotations(node: ast.AST) -> ast.AST:
    """The same children, which must stay the very same objects, less annotations and decorators."""
    bare = copy.copy(node)
    if isinstance(bare, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        bare.decorator_list = []  # `frozen` and `slots` guard against mistakes in the code, not in the data
    if isinstance(bare, ast.ClassDef):
        bare.keywords = []
    if isinstance(bare, ast.FunctionDef | ast.AsyncFunctionDef):
        bare.returns = None
        bare.args = copy.copy(bare.args)
        for name in ("posonlyargs", "args", "kwonlyargs", "vararg", "kwarg"):
            setattr(bare.args, name, [] if name.endswith("args") else None)
    elif isinstance(bare, ast.Call):
        bare.keywords = [k for k in bare.keywords if k.arg not in _GUARDS]
    elif isinstance(bare, ast.AnnAssign):
        bare.annotation = ast.Constant(None)
    elif isinstance(bare, ast.Assign) and isinstance(bare.targets[0], ast.Name) and bare.targets[0].id.istitle():
        bare.value = ast.Constant(None)  # the name of a type, such as `Place = A | B`
    return bare


def _changes(node: Place) -> Iterator[Place]:
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() | ast.AugAssign() if type(node.op) in _ARITHMETIC:
            yield _with(node, op=_ARITHMETIC[type(node.op)]())
        case ast.Constant(value=bool()):
            yield _with(node, value=not node.value)
        case ast.Constant(value=int() | float() as number):
            yield _with(node, value=number + 1)
        case ast.Call():
            for keyword in node.keywords:
                if keyword.arg not in (None, *_GUARDS):
                    yield _with(node, keywords=[k for k in node.keywords if k is not keyword])
    yield from _negated(node)
    yield from _removed(node)


def _compared(node: ast.Compare) -> Iterator[Place]:
    for place, operator in enumerate(node.ops):
        for other in _COMPARE[type(operator)]:
            yield _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])


def _negated(node: Place) -> Iterator[Place]:
    """`if x` -> `if not x`, where x is no comparison and no negation: those are changed by themselves."""
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        is_changed_elsewhere = isinstance(node.test, ast.Compare | ast.UnaryOp | ast.Constant)
        if not is_changed_elsewhere:
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))


def _removed(node: Place) -> Iterator[Place]:
    """A statement that does something is left out. Without a plain assignment nothing runs, so that is no test."""
    match node:
        case ast.Expr(value=ast.Yield()) | ast.Expr(value=ast.YieldFrom()):
            # The function must stay a generator.
            yield ast.If(ast.Constant(False), [node], [])
        case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _with(node: Place, **changes: object) -> Place:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _replaced(tree: ast.AST, target: ast.AST, changed: ast.AST) -> ast.AST:
    """The tree with one node exchanged; only the way from the root to it is copied."""

    def rebuild(node: ast.AST) -> ast.AST:
        if node is target:
            return changed
        fresh: ast.AST | None = None
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts = [rebuild(v) if isinstance(v, ast.AST) else v for v in value]
                same = all(a is b for a, b in zip(parts, value, strict=True))
                new: object = value if same else parts
            else:
                new = rebuild(value) if isinstance(value, ast.AST) else value
            if new is not value:
                fresh = fresh or copy.copy(node)
                setattr(fresh, name, new)
        return fresh or node

    return rebuild(tree)
