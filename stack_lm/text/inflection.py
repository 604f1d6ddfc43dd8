"""The other number of English verbs and nouns, by spelling rules."""

from __future__ import annotations

_VERBS = (
    "is:are was:were has:have does:do goes:go 's:'re aches:ache belies:belie biases:bias blitzes:blitz buses:bus "
    "caches:cache canvases:canvas focuses:focus gases:gas quizzes:quiz underlies:underlie unties:untie waltzes:waltz"
).split()
_IRREGULAR = dict(pair.split(":") for pair in _VERBS)
_OTHER_FORM = _IRREGULAR | {plural: singular for singular, plural in _IRREGULAR.items()}
# Of verbs; nouns have photos beside vetoes.
_TAKES_ES = ("goes", "does", "choes", "toes")
_NOUNS = (
    "analysis:analyses axis:axes basis:bases child:children crisis:crises criterion:criteria foot:feet "
    "goose:geese hypothesis:hypotheses index:indices mouse:mice ox:oxen person:people phenomenon:phenomena "
    "thesis:theses tooth:teeth"
).split()
_IRREGULAR_NOUNS = dict(pair.split(":") for pair in _NOUNS)


def other_form(verb: str, tag: str) -> str:
    """The verb's form of the other number.

    Args:
        verb: a present-tense form, or was or were; the other form has its capitals.
        tag: "VBZ" if it is singular, "VBP" if plural.
    """
    lower = verb.lower()
    form = _OTHER_FORM.get(lower) or (_plural_verb(lower) if tag == "VBZ" else _singular_verb(lower))
    if verb == lower:
        return form
    return form.upper() if verb.isupper() and len(verb) > 1 else form[:1].upper() + form[1:]


def _plural_verb(singular: str) -> str:
    if singular.endswith("ies") and len(singular) > 4:
        return singular[:-3] + "y"
    if singular.endswith(_TAKES_ES) and singular not in ("toes", "tiptoes"):
        return singular[:-2]
    return singular[:-2] if singular.endswith(("ches", "shes", "sses", "xes", "zzes")) else singular[:-1]


def _singular_verb(plural: str) -> str:
    return plural + "es" if (plural + "es").endswith(_TAKES_ES) else _with_s(plural)


def _with_s(word: str) -> str:
    if word.endswith(("ch", "sh", "ss", "x", "zz")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else word + "s"


def plural_forms(noun: str) -> list[str]:
    """Return possible plurals of a singular noun, from the most to the least regular."""
    forms = [_with_s(noun)]
    if noun in _IRREGULAR_NOUNS:
        forms.append(_IRREGULAR_NOUNS[noun])
    if noun.endswith(("s", "z", "o")):
        forms.append(noun + "es")
    if noun.endswith("man"):
        forms.append(noun[:-3] + "men")
    if noun.endswith(("f", "fe")):
        forms.append(noun.removesuffix("e")[:-1] + "ves")
    return forms
