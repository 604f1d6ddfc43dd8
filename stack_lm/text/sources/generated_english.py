"""The built-in generated English."""

from __future__ import annotations

from ...core.errors import InputError
from ..corpora import Corpus, Request, Sentence, register_source

GENERATED_SENTENCES = 20_000


@register_source("generated[:N[:SEED]]")
def open_generated(request: Request) -> Corpus:
    """N different sentences of the generated English, with their tags."""
    from ..generated import generate_corpus

    numbers = request.argument.split(":") if request.argument else []
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise InputError(f"the source is generated[:N[:SEED]] with whole numbers; got {request.source!r}")
    defaults = [str(GENERATED_SENTENCES), "0"]
    count, seed = map(int, numbers + defaults[len(numbers) :])
    return Corpus(request.source, lambda: (Sentence(s.words, s.tags) for s in generate_corpus(count, seed)))
