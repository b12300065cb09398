"""Writes the pages of the site: the Markdown of the repository, with what GitHub does and generators do not.

python3 packaging/site/pages.py FOLDER
"""

import posixpath
import re
import shutil
import sys
import unicodedata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GITHUB = "https://github.com/penstock/penstock/"
HEADING = re.compile(r"#+ +(.*)")
LINK = re.compile(r"(`[^`]*`)|\[((?:[^][]|\[[^]]*\])*)\]\(([^()\s]+)\)")

# The titles of pages are those of the navigation.
TITLES = {m[2]: m[1] for m in re.finditer(r"- ([^:\n]+): (\S+\.md)$", (HERE / "mkdocs.yml").read_text(), re.M)}


def pages():
    """Returns the pages, by their paths in the repository."""
    return [str(p.relative_to(ROOT)) for pattern in ("*.md", "docs/*.md", "docs/design/*.md") for p in sorted(ROOT.glob(pattern))]


def anchor(heading, used):
    """Returns the anchor of a heading by GitHub's rules, as TestLinks has them (internal/archtest)."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    name = "".join(c for c in text if c in " -" or unicodedata.category(c) in ("Nd", "Pc") or unicodedata.category(c)[0] in "LM").replace(" ", "-")
    n = used[name] = used.get(name, -1) + 1
    return f"{name}-{n}" if n else name


def link(path, text, to):
    """Returns a link of the page at path. What is no page of the site is at GitHub, and a page that is named as a file has its title."""
    to, _, section = to.partition("#")
    if not to or re.match(r"[a-z]+:", to):
        return f"[{text}]({to}{'#' + section if section else ''})"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
    if target in ALL or target.startswith("docs/pictures/"):
        if re.fullmatch(r"[\w./-]+\.md", text):
            text = TITLES.get(target, text)
    else:
        to = f"{GITHUB}{'tree' if (ROOT / target).is_dir() else 'blob'}/main/{target}"
    return f"[{text}]({to}{'#' + section if section else ''})"


def convert(path, text):
    """Returns the text of the page at path for the site."""
    lines, used, code = [], {}, False
    for line in text.split("\n"):
        if line.strip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            line = LINK.sub(lambda m: m[1] or link(path, m[2], m[3]), line)
            if m := HEADING.match(line):
                line += f" {{ #{anchor(m[1], used)} }}"
        lines.append(line)
    text = "\n".join(lines)
    return "---\nhide: [navigation]\n---\n\n" + text if path == "README.md" else text


ALL = set(pages())

if __name__ == "__main__":
    out = Path(sys.argv[1]) / "pages"
    shutil.copy(HERE / "mkdocs.yml", out.parent)
    shutil.rmtree(out, ignore_errors=True)
    for path in sorted(ALL):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(convert(path, (ROOT / path).read_text()))
    shutil.copytree(ROOT / "docs/pictures", out / "docs/pictures")
    for name in ("site.css", "favicon.svg"):
        shutil.copy(HERE / name, out / name)
