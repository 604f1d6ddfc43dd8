"""Print the project's weight: code without comments, blanks and docstrings, lines of tests, words of Markdown."""

import ast
import io
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("stack_lm", "parsing", "eval", "recipes")
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(source):
    """The number of lines that a module needs without its comments, blank lines and docstrings."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def main():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {Path(name): (ROOT / name).read_text() for name in listed.splitlines() if name.endswith((".py", ".md"))}
    code = {path: lines_of_code(text) for path, text in texts.items() if path.suffix == ".py" and path.parts[0] in CODE}
    for folder in CODE:
        print(f"{sum(n for path, n in code.items() if path.parts[0] == folder):8,} lines of code in {folder}/")
    print(f"{sum(code.values()):8,} lines of code")
    tests = [text for path, text in texts.items() if path.suffix == ".py" and path.parts[0] == "tests"]
    print(f"{sum(text.count(chr(10)) for text in tests):8,} lines of tests")
    print(f"{sum(len(text.split()) for path, text in texts.items() if path.suffix == '.md'):8,} words of Markdown")


if __name__ == "__main__":
    main()
