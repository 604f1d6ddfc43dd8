# Votes, readings with dropout, the taught parser, and models that read backwards
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- Votes and baselines

nine=$(echo runs/{u1-s[0-3],free-s0,free-falls-s3,free-falls-s4,exit-s0,base-further})
score="parse-f1 --ensemble $nine --data nltk:treebank --json"
for convention in prpn merrill; do
    stack-lm $score --convention $convention --prior right-branching --baselines > $convention.json
done
stack-lm $score --convention prpn --rule punctuation=before --prior right-branching > prpn-without-punctuation.json
stack-lm $score --convention prpn --rule punctuation=before --decoder gap > prpn-without-punctuation-gap.json


# --- Readings with dropout

for convention in prpn merrill; do
  for samples in "" "--dropout-samples 16"; do
    stack-lm parse-f1 runs/{u1-s[0-3],own-s0,exit-s0,base-further,base,free-falls-s[0-4]} \
        --data nltk:treebank --convention $convention $samples --json
  done
done > dropout.jsonl

head -n 1000 sentences.txt > some.txt    # those that the parser below learns from
for model in runs/{u1-s[0-3],free-s0,free-falls-s[34]}; do
    stack-lm parse $model --data some.txt --output trees/0/$(basename $model).mrg
    for rate in 0.05 0.1 0.2 0.3 0.4; do
        stack-lm parse $model --data some.txt --dropout-samples 16:$rate --output trees/$rate/$(basename $model).mrg
    done
done
python - <<END
from pathlib import Path

from stack_lm.parsing import read_treebank
from stack_lm.parsing.ensemble import are_words, mutual_f1

def read(rate):
    return [[t.keep(are_words(t.words)) for t in read_treebank(str(f))] for f in sorted(Path("trees", rate).glob("*.mrg"))]

plain = read("0")
for rate in ("0", "0.05", "0.1", "0.2", "0.3", "0.4"):
    with_others = [mutual_f1([run, *plain[:i], *plain[i + 1 :]])[0, 1:].mean() for i, run in enumerate(read(rate))]
    print(rate, sum(with_others) / len(with_others))
END


# --- A parser taught by votes

python -c "import random
lines = [line for line in open('wiki.txt') if 5 <= len(line.split()) <= 40]
first = random.Random(0).sample(lines, 100_000)
taken = set(first)
rest = [line for line in lines if line not in taken]
open('sentences.txt', 'w').writelines(first + random.Random(1).sample(rest, 50_000))"
for model in $voters; do
    stack-lm parse $model --data sentences.txt --output trees/$(basename $model).mrg
done
for model in $backwards; do
    python backwards.py sentences.txt $model > trees/$(basename $model).jsonl
done
stack-lm train parser 'data.trees=[trees/*.mrg, trees/*.jsonl]' data.prior=right-branching data.prior_votes=6 \
    data.held_out=2000 training.epochs=3 training.decay_steps=4500 output_dir=runs/taught
stack-lm parse-f1 runs/taught --data nltk:treebank --convention prpn

small="small.yaml $common training.decay_steps=2000 training.max_steps=7840"    # small.yaml: own.yaml with its first layer alone
for seed in {100..113}; do
    stack-lm train lm $small seed=$seed output_dir=runs/small-s$seed
done
for seed in 101 102 {120..130} 150; do
    stack-lm train lm $small seed=$seed model.embedding_size=200 output_dir=runs/small-200-s$seed
done
for seed in 101 103 {120..130} 150; do
    stack-lm train lm $small seed=$seed training.batch_size=8 training.max_steps=15680 training.decay_steps=4000 \
        output_dir=runs/small-8-s$seed
done
stack-lm parse-f1 --ensemble $all --data nltk:treebank --convention prpn --prior right-branching:5    # all 47
stack-lm parse-f1 --ensemble $all treebank/*.jsonl --data nltk:treebank --convention prpn \
    --prior right-branching:6                                                                             # all 61


# --- Models that read backwards

cat > backwards.py <<'END'
"""Print a text backwards, or the trees of a model that was trained on such text: backwards.py TEXT [MODEL]."""

import json
import sys

from stack_lm import ModelScorer
from stack_lm.parsing import distances_from_trace


def backwards(words):
    first = words[0].lower() if words[0][1:].islower() or len(words[0]) == 1 else words[0]
    return [*words[:0:-1], first]


texts = [words for line in open(sys.argv[1]) if (words := line.split())]
if len(sys.argv) == 2:
    for words in texts:
        print(*backwards(words))
else:
    scorer = ModelScorer.from_pretrained(sys.argv[2])
    for start in range(0, len(texts), 5000):
        some = texts[start : start + 5000]
        for words, trace in zip(some, scorer.trace([backwards(words) for words in some], logprobs=False)):
            distances = distances_from_trace(trace, "push_strength")[::-1]
            print(json.dumps({"words": words, "distances": distances.round(5).tolist()}))
END

python backwards.py wiki.txt > reversed.txt
sed 's/first_word/none/' small.yaml > back.yaml    # small.yaml: above; the script has lowered first words
for seed in {200..210} {220..226}; do
    stack-lm train lm back.yaml ${common/wiki.txt/reversed.txt} training.decay_steps=2000 training.max_steps=7840 \
        seed=$seed output_dir=runs/back-s$seed
done
stack-lm train lm merrill2019/brown_free data.source=reversed.txt tokenizer.lowercase=none data.held_out=3000 \
    training.epochs=1 training.eval_every=10000 training.decay_steps=8415 seed=0 output_dir=runs/back-free-s0
python -c "from stack_lm.parsing import read_treebank
for tree in read_treebank('nltk:treebank'):
    print(*tree.words)" > treebank.txt
mkdir treebank
for model in $backwards; do    # the 13 seeds and back-free-s0
    python backwards.py treebank.txt $model > treebank/$(basename $model).jsonl
done
stack-lm parse-f1 treebank/*.jsonl --data nltk:treebank --convention prpn
