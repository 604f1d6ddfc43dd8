"""Which folders make the package; everything else is in pyproject.toml.

parsing/, eval/ and recipes/configs/ install inside the package: `eval` and `parsing` would otherwise become global
import names, and the presets are data of the package.
"""

from setuptools import find_namespace_packages, find_packages, setup

INSIDE = {"stack_lm.parsing": "parsing", "stack_lm.eval": "eval", "stack_lm.configs": "recipes/configs"}


def folders(folder: str) -> list[str]:
    """The folders in a folder, by their dotted names; those of data too, which setuptools takes for packages."""
    return find_namespace_packages(folder, exclude=["*__pycache__*"])


setup(
    packages=[
        *find_packages(include=["stack_lm", "stack_lm.*"]),
        *INSIDE,
        *(f"{package}.{name}" for package, folder in INSIDE.items() for name in folders(folder)),
    ],
    package_dir=INSIDE,
)
