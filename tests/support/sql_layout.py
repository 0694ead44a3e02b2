"""Lays out a statement for reading: what fits stays on one line, what does not has a line for each clause."""

import re

WIDTH = 110
TOKEN = re.compile(r"""(\s*)(\w*'(?:[^']|'')*'|"[^"]*"|%\(\w+\)s|[(),;]|[^\s(),;'"]+)""")
STARTS = {
    *("WITH", "SELECT", "FROM", "WHERE", "AND", "GROUP", "HAVING", "ORDER", "UNION", "LEFT", "CROSS", "STRAIGHT_JOIN"),
    *("INSERT", "UPDATE", "DELETE", "SET", "VALUES", "ON", "RETURNING", "FOR", "BEGIN", "START", "COMMIT", "END"),
}
"""Words at which a clause begins."""
INSIDE = {"FOR UPDATE", "DO UPDATE", "KEY UPDATE", "UPDATE SET", "DISTINCT ON", "HANDLER FOR"}
"""But not if they stand behind this word."""


class Node:
    """A word, or what stands in parentheses."""

    def __init__(self, space: str, word: str = "", inside: "list[Node] | None" = None):
        self.space = " " if space else ""
        self.inside = inside
        self.word = word
        self.text = word if inside is None else f"({flat(inside)})"


def layout(sql: str) -> str:
    text = "\n".join(_lines(_nodes(TOKEN.finditer(sql)), ""))
    assert "".join(text.split()) == "".join(sql.split()), f"Only white space may change, not what is said: {sql}"
    return text


def flat(nodes: list[Node]) -> str:
    return "".join(node.space + node.text for node in nodes).strip()


def _nodes(tokens) -> list[Node]:
    """Up to the parenthesis that closes."""
    found = []
    for token in tokens:
        space, word = token.groups()
        if word == ")":
            break
        found.append(Node(space, inside=_nodes(tokens)) if word == "(" else Node(space, word))
    return found


def _lines(nodes: list[Node], indent: str) -> list[str]:
    if len(indent + flat(nodes)) <= WIDTH:
        return [indent + flat(nodes)]
    return [line for clause in _clauses(nodes) for line in _clause(clause, indent)]


def _clauses(nodes: list[Node]) -> list[list[Node]]:
    clauses, cases, last = [], 0, ""
    for node, following in zip(nodes, [*nodes[1:], Node("")], strict=True):
        begins = node.word in STARTS and f"{last} {node.word}" not in INSIDE and not cases
        if node.word == "ON":
            begins = following.word in ("CONFLICT", "DUPLICATE")
        if node.word == "VALUES":
            begins = bool(following.space)  # and is no function
        if node.word == "LIMIT":
            begins = bool(clauses) and clauses[-1][0].word != "ORDER"
        if not clauses or last == ";" or begins:
            clauses.append([])
        cases += (node.word == "CASE") - (node.word == "END" and cases > 0)
        clauses[-1].append(node)
        last = node.word
    return clauses


def _clause(nodes: list[Node], indent: str) -> list[str]:
    """As many items on a line as fit on it."""
    indent += "  " * (nodes[0].word == "AND")
    further = indent if nodes[0].word in ("WITH", "VALUES") or nodes[0].word not in STARTS else f"{indent}    "
    done, line = [], ""
    for item in _items(nodes):
        text = flat(item)
        if line and len(f"{line} {text}") <= WIDTH:
            line = f"{line} {text}"
            continue
        *more, last = _item(item, further if line else indent)
        done += [line] * bool(line) + more
        line = last
    return [*done, line]


def _items(nodes: list[Node]) -> list[list[Node]]:
    """What stands between commas, with the comma behind it."""
    items = [[]]
    for node in nodes:
        items[-1].append(node)
        if node.word == ",":
            items.append([])
    return [item for item in items if item]


def _item(nodes: list[Node], indent: str) -> list[str]:
    """What is in parentheses and too long has lines of its own."""
    done, line = [], indent
    for node in nodes:
        text = (node.space if line.strip() else "") + node.text
        if node.inside and len(line + text) > WIDTH:
            done += [line + node.space * bool(line.strip()) + "(", *_lines(node.inside, f"{indent}    ")]
            line = indent + ")"
        elif len(line + text) > WIDTH and node.space:
            done.append(line)
            line = f"{indent}    {node.text}"
        else:
            line += text
    return [*done, line]
