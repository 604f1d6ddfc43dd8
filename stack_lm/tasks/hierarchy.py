"""The classes of the papers' tasks in the Chomsky hierarchy.

A task with answers has the class of the language of its inputs with their answers, as in Delétang et al. (2023) and
Butoi et al. (2025).
"""

from __future__ import annotations

REGULAR, DETERMINISTIC = "regular", "deterministic context-free"
CONTEXT_FREE, CONTEXT_SENSITIVE = "context-free", "context-sensitive"
# From the smallest to the largest; "context-free" is for languages that no deterministic automaton accepts.
LEVELS = (REGULAR, DETERMINISTIC, CONTEXT_FREE, CONTEXT_SENSITIVE)
_TASKS = {
    REGULAR: {
        "brackets": "dyck_km",
        "akyurek2024": "regbench",
        "groups": "s3 s5 a5 z60 word_problem",
        "deletang2023": "even_pairs modular_arithmetic_simple parity_check cycle_navigation",
        "flare": "even_pairs repeat_01 parity cycle_navigation modular_arithmetic_simple dyck_2_3 first",
    },
    DETERMINISTIC: {
        "deletang2023": "stack_manipulation reverse_string modular_arithmetic solve_equation",
        "flare": "majority stack_manipulation marked_reversal",
        "dusell2020": "marked_reversal dyck",
        "dusell2023": "marked_reversal dyck",
        "joulin2015": "anbn anb2n anbmcnm",
    },
    CONTEXT_FREE: {
        "flare": "unmarked_reversal",
        "dusell2020": "unmarked_reversal padded_reversal hardest_cfl",
        "dusell2023": "unmarked_reversal",
    },
    CONTEXT_SENSITIVE: {
        "brackets": "shuffle",
        "deletang2023": "duplicate_string missing_duplicate odds_first binary_addition binary_multiplication "
        "compute_sqrt bucket_sort",
        "flare": "marked_copy missing_duplicate_string odds_first binary_addition binary_multiplication compute_sqrt "
        "bucket_sort",
        "dusell2023": "count_3 marked_reverse_and_copy count_and_copy marked_copy unmarked_copy_different_alphabets "
        "unmarked_reverse_and_copy unmarked_copy",
        "joulin2015": "anbncn anbncndn anbmcndm",
    },
}
_LEVEL_OF = {
    f"{paper}/{task}": level
    for level, papers in _TASKS.items()
    for paper, tasks in papers.items()
    for task in tasks.split()
}


def level_of(task: str) -> str:
    """The class of a task, one of `LEVELS`; "" if unknown.

    Args:
        task: as `make_task` names it.
    """
    return _LEVEL_OF.get(task, "")
