"""Print pyproject.toml's lower bounds as constraints for pip: the old end of `make compat`. torch is left to TORCH."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for requirement in (*project["dependencies"], *extras["plots"], *extras["clients"]):
    name, bound = re.match(r"([\w-]+)>=([\w.]+)", requirement).groups()
    if name != "torch":
        print(f"{name}=={bound}")
