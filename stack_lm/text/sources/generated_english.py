"""The built-in generated English."""

from __future__ import annotations

from ...core.errors import InputError
from ..corpora import Corpus, Request, Sentence, register_source

GENERATED_SENTENCES = 20_000
MOST_SENTENCES = 10_000_000  # each is kept, so that no two are alike


@register_source("generated[:N[:SEED]]")
def open_generated(request: Request) -> Corpus:
    """N different sentences of the generated English, with their tags."""
    from ..generated import generate_corpus

    numbers = request.argument.split(":") if request.argument else []
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise InputError(
            f"the generated corpus is named generated[:N[:SEED]] with whole numbers; got {request.source!r}"
        )
    defaults = [str(GENERATED_SENTENCES), "0"]
    count, seed = (int(number[:15]) for number in numbers + defaults[len(numbers) :])
    if count > MOST_SENTENCES or any(len(number) > 15 for number in numbers):
        raise InputError(
            f"the generated corpus has at most {MOST_SENTENCES:,} sentences, and a seed of at most 15 digits; got "
            f"{request.source!r}"
        )
    return Corpus(request.source, lambda: (Sentence(s.words, s.tags) for s in generate_corpus(count, seed)))
