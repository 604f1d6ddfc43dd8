"""Which folders make the package; everything else is in pyproject.toml.

parsing/ and eval/ are top-level folders of the project, but they install inside the package: `eval` and `parsing` would
otherwise become global import names.
"""

from setuptools import find_packages, setup

INSIDE = ("parsing", "eval")
setup(
    packages=[
        *find_packages(include=["stack_lm", "stack_lm.*"]),
        *(f"stack_lm.{name}" for folder in INSIDE for name in find_packages(include=[folder, f"{folder}.*"])),
    ],
    package_dir={f"stack_lm.{folder}": folder for folder in INSIDE},
)
