"""Checks the links of all Markdown pages in the repository.

    scripts/doc_links.py

Each relative link must lead to a file or directory, and its anchor to a heading of that page. Prints
PAGE:LINE: LINK for each that does not, and exits with 1.
"""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")


def prose(page):
    """The page's lines with their numbers, without blocks of code."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def anchors(page):
    """The anchors of a page's headings; a repeated heading has a number after its name."""
    found = {}
    for _, line in prose(page):
        if heading := re.match(r"#+ (.*)", line):
            name = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
            found[name] = found.get(name, -1) + 1
    return {f"{name}-{i}" if i else name for name, last in found.items() for i in range(last + 1)}


def broken(page):
    """Line numbers and links of a page that lead nowhere."""
    for number, line in prose(page):
        for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            is_lost = anchor and target.suffix == ".md" and anchor not in anchors(target)
            if not target.exists() or is_lost:
                yield number, link


def main():
    listed = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True)
    pages = [pathlib.Path(name) for name in listed.stdout.splitlines()]
    lost = [(page, number, link) for page in pages if page.exists() for number, link in broken(page)]
    for page, number, link in lost:
        print(f"{page}:{number}: {link}", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
