"""`stack-lm push`: upload a model directory to the hub, with its code and its card."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from ...core.errors import InputError
from ...core.messages import first_line, shortened
from ...hub.card import CARD, write_card
from ...hub.publishing import copy_model, staging, upload
from ...text.plain import json_record, read_text
from ..options import option
from ..report import Report

EXAMPLE = "stack-lm push runs/brown-u1 someone/stack-lm-brown --dry-run upload/"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm push`."""
    option(parser, "MODEL", "a model directory")
    option(parser, "REPOSITORY", "a repository on the hub, such as someone/model")
    option(parser, "--dry-run DIRECTORY", "write the files to this directory, and upload nothing")
    option(parser, "--private", "make a new repository private", default=None)
    option(parser, "--message TEXT", "commit message", default="Upload model")
    option(parser, "--revision BRANCH", "the branch to upload to, made if necessary", default=None)


def run(options: argparse.Namespace) -> Report:
    """Collect the files and, unless it is a dry run, upload them."""
    source = Path(options.model)
    try:
        validate_repo_id(options.repository)
    except HFValidationError as error:
        raise InputError(first_line(error)) from error
    with staging(options.dry_run) as staged:
        directory = Path(staged)
        copy_model(source, directory)
        _add_code(source, directory)
        if not (directory / CARD).exists():
            write_card(directory, run=source, name=options.repository.rpartition("/")[2])
        files = sorted(path.name for path in directory.iterdir())
        target = options.dry_run or _upload(directory, options)
    record = {"model": options.model, "repository": options.repository, "target": target, "files": files}
    return Report(record, [f"{target}: {', '.join(files)}"])


def _add_code(source: Path, directory: Path) -> None:
    """Add the code of the model's classes, if its kind is known and the directory has none."""
    from ...hub.code import has_code, write_code
    from ...models.kinds import kind_of

    path = directory / "config.json"
    config = json_record(read_text(path), str(path))
    kind = kind_of(str(config.get("model_type")))
    if kind is None or config.get("auto_map"):
        return
    try:
        if not has_code(kind.config.from_dict(config)):
            return
    except Exception as error:  # transformers and huggingface_hub have many kinds for fields of other types
        raise InputError(f"cannot write the code of {source}: {shortened(error, 300)}") from error
    text = json.dumps(config | {"auto_map": write_code(kind, directory)}, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def _upload(directory: Path, options: argparse.Namespace) -> str:
    try:
        commit = {"commit_message": options.message, "revision": options.revision}
        return upload(directory, options.repository, private=options.private, **commit)
    except Exception as error:  # the hub and the network have many kinds
        raise InputError(f"cannot upload to {options.repository}: {shortened(first_line(error), 300)}") from error
