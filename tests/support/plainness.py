"""Counts what makes Python code hard to read: decisions and statements hidden in expressions."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# They come with the expression that they belong to.
UNCOUNTED = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
# A comment that begins with one of these words mostly goes on from the code, and is no sentence.
HALF_SENTENCE = re.compile(r"(and|but|else|for|of|or|that|what|which|with)\b", re.IGNORECASE)
BRANCHING_STATEMENTS = (ast.If, ast.While, ast.ExceptHandler, ast.match_case)


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is nothing but a string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def count_code_lines(source: str, tree: ast.Module) -> int:
    """Counts the lines with more than comments, docstrings and white space."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if is_docstring(node):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def operators_of_conditions(tree: ast.Module) -> set[ast.AST]:
    """Collects every `and` and `or` of a condition, where a branch is plain to see."""
    conditions = set()
    for node in ast.walk(tree):
        tests = []
        if isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):
            tests.append(node.test)
        if isinstance(node, ast.comprehension):
            tests.extend(node.ifs)
        while tests:
            test = tests.pop()
            if isinstance(test, ast.UnaryOp):
                tests.append(test.operand)
            elif isinstance(test, ast.BoolOp):
                conditions.add(test)
                tests.extend(test.values)
    return conditions


def is_product_with_a_flag(node: ast.AST) -> bool:
    """Recognises ``[item] * (count == 0)``: a branch that is written as a product."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return False
    for literal, factor in ((node.left, node.right), (node.right, node.left)):
        is_text = isinstance(literal, ast.Constant) and isinstance(literal.value, str)
        is_literal = is_text or isinstance(literal, ast.List | ast.Tuple | ast.JoinedStr)
        is_flag = isinstance(factor, ast.Compare | ast.BoolOp) or (
            isinstance(factor, ast.UnaryOp) and isinstance(factor.op, ast.Not)
        )
        if is_literal and is_flag:
            return True
    return False


def is_tuple_assignment(node: ast.AST) -> bool:
    """Recognises ``a, b = x, y``, unless it swaps the same names."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
        return False
    if not isinstance(node.targets[0], ast.Tuple):
        return False
    targets = sorted(ast.unparse(target) for target in node.targets[0].elts)
    values = sorted(ast.unparse(value) for value in node.value.elts)
    return targets != values


def count_blank_lines(source: str, tree: ast.Module) -> Counter[str]:
    """Counts the lines of the bodies of functions, and those of them that are blank."""
    lines = source.splitlines()
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            statements = [statement for statement in node.body if not is_docstring(statement)]
            if statements:
                body = lines[statements[0].lineno - 1 : node.end_lineno]
                counts["lines in bodies"] += len(body)
                counts["blank lines in bodies"] += sum(not line.strip() for line in body)
    return counts


def count_half_sentences(source: str) -> Counter[str]:
    """Counts comments on lines of their own, and those of them that are no whole sentence."""
    counts: Counter[str] = Counter()
    for block in re.findall(r"(?:^ *# (?!---).*\n)+", source, flags=re.MULTILINE):
        text = " ".join(line.strip(" #") for line in block.splitlines())
        counts["comments"] += 1
        is_whole = text.endswith((".", ":", "?", ")"))
        counts["half sentences"] += not is_whole or HALF_SENTENCE.match(text) is not None
    return counts


def count(path: Path) -> Counter[str]:
    """Counts one file.

    Returns:
        `nodes` of the syntax tree, `code lines`, `branches` in statements, `hidden branches` in
        values, `tuple assignments`, `walruses`, `products with a flag`, and `calls by position`
        with four arguments or more; `blank lines in bodies` of functions of all `lines in bodies`;
        `half sentences` of all `comments` on lines of their own.
    """
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    conditions = operators_of_conditions(tree)

    counts = count_blank_lines(source, tree) + count_half_sentences(source)
    counts["code lines"] = count_code_lines(source, tree)
    for node in ast.walk(tree):
        counts["nodes"] += not isinstance(node, UNCOUNTED)
        counts["nodes"] -= 2 * is_docstring(node)  # the statement and its string
        counts["tuple assignments"] += is_tuple_assignment(node)
        counts["walruses"] += isinstance(node, ast.NamedExpr)
        counts["products with a flag"] += is_product_with_a_flag(node)
        if isinstance(node, ast.Call):
            counts["calls by position"] += len(node.args) >= 4

        if isinstance(node, BRANCHING_STATEMENTS):
            counts["branches"] += 1
        elif isinstance(node, ast.IfExp) or is_product_with_a_flag(node):
            counts["hidden branches"] += 1
        elif isinstance(node, ast.BoolOp) and node not in conditions:
            counts["hidden branches"] += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            counts["hidden branches"] += len(node.ifs)
    return counts
