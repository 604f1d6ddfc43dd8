"""The pages of the site that are no file of docs/: the reference, the examples, the changelog.

mkdocs calls the functions that begin with `on_`. The reference is made from the sources, so that no public name is
missing from it.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
INSIDE = ("eval", "parsing")  # folders beside the package that are installed in it
INTERNAL = {"commands", "kernels"}
FIRST = ("stack_lm.Parser", "stack_lm.surprisal", "stack_lm.StackRNN")  # names that most readers look for
TOP = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
# Files of the repository in whose place a link leads to a page of the site.
PAGES = TOP | {
    "README.md": "index.md",
    "models/README.md": "models.md",
    "stack_lm/cli/main.py": "commands.md",
    "stack_lm/memory/base.py": "reference/stack_lm.memory.md",
    "stack_lm/models/configuration_buffered.py": "model-configuration.md",
    "stack_lm/models/configuration_deep.py": "model-configuration.md",
    "stack_lm/models/configuration_transformer.py": "model-configuration.md",
    "stack_lm/models/configuration_stack_rnn.py": "model-configuration.md",
    "stack_lm/tasks/files.py": "reference/stack_lm.tasks.md",
    "stack_lm/training/trials/config.py": "configuration.md",
    "stack_lm/training/config.py": "configuration.md",
}


def packages() -> Iterator[tuple[str, Path]]:
    """The packages that the reference describes, by name, with their folders."""
    yield "stack_lm", ROOT / "stack_lm"
    folders = [path.parent for path in (ROOT / "stack_lm").glob("*/__init__.py")] + [ROOT / name for name in INSIDE]
    for folder in sorted(folders, key=lambda folder: folder.name):
        if folder.name not in INTERNAL:
            yield f"stack_lm.{folder.name}", folder


def public_names(package: str, folder: Path) -> list[str]:
    """The names that a package's `__all__` lists; without one, the public classes and functions of its modules."""
    listed = [
        f"{package}.{name}"
        for node in ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("__all__", "_HOMES")
        for name in ast.literal_eval(node.value)
    ]
    return listed or [
        f"{package}.{path.stem}.{node.name}"
        for path in sorted(folder.glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
    ]


def notebook(path: Path) -> str:
    """A notebook as a page: its text, its code and its outputs."""
    parts: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
        parts += [shown for output in cell.get("outputs", []) if (shown := _output(output))]
    return "\n\n".join(parts)


def program(path: Path) -> str:
    """A script as a page."""
    return f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"


def _output(output: dict[str, Any]) -> str:
    """What a cell printed or showed; nothing for the frame of another page, which is not on the site."""
    data = {kind: "".join(content) for kind, content in output.get("data", {}).items()}
    if "image/png" in data:
        return f'<p><img alt="" src="data:image/png;base64,{"".join(data["image/png"].split())}"></p>'
    if "text/html" in data:
        html = re.sub(r"<style scoped>.*?</style>", "", data["text/html"], flags=re.DOTALL)
        return "" if "<iframe" in html else "<div>" + " ".join(html.split("\n")) + "</div>"
    printed = "".join(output.get("text", "")) or data.get("text/plain", "")
    return f"```text\n{printed.rstrip()}\n```" if printed and output.get("name") != "stderr" else ""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the made pages in the groups of mkdocs.yml, behind those that are listed there."""
    made = _made_pages()
    groups: dict[str, list[Any]] = {title: pages for group in config.nav or [] for title, pages in group.items()}
    groups["How-to"] += [{"Examples": [uri for uri in made if uri.startswith("examples/")]}, "contributing.md"]
    groups["Reference"] += [{"Python": [uri for uri in made if uri.startswith("reference/")]}, "changelog.md"]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the made pages."""
    from mkdocs.structure.files import File

    for uri, content in _made_pages().items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links between files of the repository into links between pages; list the papers on the page that cites."""
    uri = page.file.src_uri
    if uri == "cite.md":
        markdown += papers()
    source = {made: name for name, made in TOP.items()}.get(uri, uri if uri.startswith("examples/") else f"docs/{uri}")
    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^):#]+)(#[^)]*)?\)", lambda link: _link(link, source, uri), markdown)


def papers() -> str:
    """The papers of CITATION.cff, as a list below a heading."""
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    lines = []
    for paper in references:
        names = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
        where = paper.get("collection-title") or paper["journal"]
        lines.append(f"- {', '.join(names)}. {paper['title']}. {where}, {paper['year']}.\n")
    return "\n## Papers\n\n" + "".join(lines)


def _made_pages() -> dict[str, str]:
    pages = {uri: (ROOT / name).read_text(encoding="utf-8") for name, uri in TOP.items()}
    pages |= {f"examples/{path.stem}.md": notebook(path) for path in sorted((ROOT / "examples").glob("*.ipynb"))}
    pages |= {f"examples/{path.stem}.md": program(path) for path in sorted((ROOT / "examples").glob("*.py"))}
    return pages | {f"reference/{name}.md": _reference(name, public_names(name, folder)) for name, folder in packages()}


def _reference(package: str, names: list[str]) -> str:
    """The page of one package: its description, then its public names."""
    names = sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    head = f"# {package}\n\n::: {package}\n    options:\n      show_root_heading: false\n      members: false\n"
    return head + "".join(f"\n::: {name}\n" for name in names)


def _link(link: re.Match[str], source: str, uri: str) -> str:
    """One link of a page; only its text is left where the file is in the repository but not on the site."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
    made = PAGES.get(target)
    if target.startswith("docs/"):
        made = target.removeprefix("docs/")
    elif target.startswith("examples/"):
        made = target.rpartition(".")[0] + ".md"
    if made is None:
        return link[1] if (ROOT / target).exists() else link[0]
    return f"[{link[1]}]({posixpath.relpath(made, posixpath.dirname(uri) or '.')}{link[3] or ''})"
