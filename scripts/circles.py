"""Checks that no modules of a crate use each other in a circle.

    scripts/circles.py

A module and the modules below it are one room, in which everything may use everything. Circles
between all others are errors, unless the header of a member says why it is "in a circle with
`NAME`", another member. Prints CRATE: MODULE -> MODULE for each step of a circle, and exits with 1.

Only names in `use` and paths from `crate` and `super` are read; tests and their fixtures are not.
"""

import pathlib
import re
import sys

TESTS = {"tests", "fixture", "testing"}
USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"\b(?:crate|super)(?:::\w+)+")
REASON = re.compile(r"in a circle with `(?:\w+::)*(\w+)`")


def modules(crate):
    """The files of a crate by the path of their module."""
    found = {}
    for file in sorted((crate / "src").rglob("*.rs")):
        path = file.relative_to(crate / "src").with_suffix("").parts
        if path[-1] in ("mod", "lib", "main"):
            path = path[:-1]
        if not TESTS.intersection(path):
            found.setdefault(path, file)
    return found


def expand(tree, prefix=()):
    """The paths of a use tree, such as `a::{b, c::{self, d}}`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        path = tree.split(" as ")[0].strip()
        return [prefix + tuple(path.split("::"))] if path else []
    prefix += tuple(name for name in head.strip().split("::") if name)
    found, depth, part = [], 0, ""
    for char in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            found += expand(part, prefix)
            part = ""
        else:
            part += char
    return found


def target(path, module, known):
    """The module that a path in `module` leads to; None if that is in another crate."""
    if path[0] == "crate":
        path = path[1:]
    elif path[0] == "super":
        ups = next((i for i, name in enumerate(path) if name != "super"), len(path))
        path = module[: len(module) - ups] + path[ups:]
    elif path[0] == "self" or module + path[:1] in known:
        path = module + path[path[0] == "self" :]
    else:
        return None
    while path not in known and path:
        path = path[:-1]
    return path


def uses(module, known):
    """The modules outside of its own room that a module uses."""
    text = known[module].read_text().split("#[cfg(test)]\nmod tests {")[0]
    text = re.sub(r"//.*", "", text)
    paths = [path for tree in USE.findall(text) for path in expand(re.sub(r"\s+", " ", tree))]
    paths += [tuple(path.split("::")) for path in PATH.findall(text)]
    found = {target(path, module, known) for path in paths} - {None}
    return {to for to in found if to != module[: len(to)] and module != to[: len(module)]}


def reachable(start, graph):
    """All modules that a module uses, itself or through others."""
    found, left = set(), [start]
    while left:
        new = graph.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def circles(known):
    """The largest sets of modules of which each uses all others, and the steps within them."""
    graph = {module: uses(module, known) for module in known}
    reached = {module: reachable(module, graph) for module in known}
    sets = {frozenset(b for b in reached[a] if a in reached[b]) for a in known}
    for circle in sorted((circle for circle in sets if circle), key=sorted):
        yield circle, [(a, b) for a in sorted(circle) for b in sorted(graph[a] & circle)]


def has_reason(circle, known):
    """Whether the header of a member says why it is in a circle with another one."""
    names = {module[-1] for module in circle if module}
    for module in circle:
        lines = known[module].read_text().splitlines()
        header = " ".join(line[3:].strip() for line in lines if line.startswith("//!"))
        if names.intersection(REASON.findall(header)):
            return True
    return False


def main():
    is_failed = False
    for crate in sorted(path.parent for path in pathlib.Path("crates").glob("*/src")):
        known = modules(crate)
        for circle, steps in circles(known):
            if has_reason(circle, known):
                continue
            is_failed = True
            for a, b in steps:
                print(f"{crate.name}: {'::'.join(a)} -> {'::'.join(b)}", file=sys.stderr)
    return 1 if is_failed else 0


if __name__ == "__main__":
    sys.exit(main())
