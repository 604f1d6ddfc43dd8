"""Count the words of a training text, for `stack-lm surprisal --frequencies`.

    python benchmarks/word_counts.py wiki.txt.xz --words 30000 > models/wikipedia-base/word_counts.tsv

The text has a sentence of Penn Treebank tokens in each line; contractions are joined again, and all is in lower case.
"""

import argparse
import re
from collections import Counter

from stack_lm.text.plain import read_lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text")
    parser.add_argument("--words", type=int, default=30_000, help="the most frequent words to print")
    options = parser.parse_args()
    contraction = re.compile(r" (?=(?:n't|'(?:s|d|m|re|ve|ll))(?: |$))")
    counts: Counter[str] = Counter()
    for _, line in read_lines(options.text):
        counts.update(word for word in contraction.sub("", line.lower()).split() if any(map(str.isalnum, word)))
    print("word\tcount")
    for word, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[: options.words]:
        print(f"{word}\t{count}")


if __name__ == "__main__":
    main()
