"""The files around the package: licence, citation, changelog and hooks agree with it and with their own formats."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from stack_lm import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_version_is_the_same_everywhere():
    """In package, metadata, citation and changelog, where a pre-release is in the section of its release."""
    assert PROJECT["version"] == CITATION["version"] == __version__
    release = re.match(r"\d+\.\d+\.\d+", __version__)[0]
    assert release in re.findall(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_citation_has_what_its_format_requires():
    """Citation File Format 1.2.0: the required keys, of the software and of each reference."""
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["message"]
    assert (CITATION["title"], CITATION["type"]) == (PROJECT["name"], "software")
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["authors"] == PROJECT["authors"] == [{"name": "The stack-lm developers"}]
    assert len(CITATION["references"]) >= 11
    for reference in CITATION["references"]:
        assert reference["type"] in ("article", "conference-paper")
        assert isinstance(reference["title"], str)
        assert isinstance(reference["year"], int)
        assert reference.get("collection-title") or reference["journal"]  # the page that cites shows it
        for author in reference["authors"]:
            assert author.keys() == {"family-names", "given-names"}


def test_the_changelog_is_in_its_form():
    """Keep a Changelog 1.1.0: versions as headings, kinds of change below them, and items below those."""
    text = (ROOT / "CHANGELOG.md").read_text()
    assert text.startswith("# Changelog\n")
    newest, *released = re.findall(r"^## (.+)$", text, re.MULTILINE)
    dated = r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d"
    assert re.fullmatch(rf"\[Unreleased\]|\[\d+\.\d+\.\d+\] - unreleased|{dated}", newest)
    assert all(re.fullmatch(dated, version) for version in released)
    kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert kinds
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for section in text.split("\n### ")[1:]:
        assert re.match(r"\w+\n\n- ", section)


@pytest.mark.parametrize("extra", re.findall(r"stack-lm\[([\w,]+)\]", "".join(
    path.read_text() for folder in ("stack_lm", "parsing", "eval", "docs", "benchmarks", "recipes")
    for pattern in ("*.py", "*.md") for path in (ROOT / folder).rglob(pattern)
)))  # fmt: skip
def test_extras_that_are_recommended_exist(extra):
    assert set(extra.split(",")) <= PROJECT["optional-dependencies"].keys()
