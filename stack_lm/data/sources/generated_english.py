"""The built-in generated English."""

from __future__ import annotations

from ...errors import InputError
from ..corpora import Corpus, Request, Sentence, register_source

GENERATED_SENTENCES = 20_000


@register_source("generated[:N[:SEED]]")
def open_generated(request: Request) -> Corpus:
    """N sentences of the generated English, no two alike, with their tags."""
    from ..generated import generate_corpus

    numbers = request.argument.split(":") if request.argument else []
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise InputError(
            f"the generated corpus is named generated[:N[:SEED]] with whole numbers; got {request.source!r}"
        )
    count, seed = [int(number) for number in numbers] + [GENERATED_SENTENCES, 0][len(numbers) :]
    return Corpus(request.source, lambda: (Sentence(s.words, s.tags) for s in generate_corpus(count, seed)))
