# The language models of the paper's sizes, on 30 million words of Wikipedia
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- Wikipedia, the paper's sizes

for run in u1-s0 u1-s1 u1-s2 u1-s3 u1-s4 d1-s0 d1-s1 free-s0 free-s1 free-s2 lstm-s0 lstm-s1 lstm-s2; do
  stack-lm train lm merrill2019/brown_${run%-s?} data.source=wiki.txt data.held_out=3000 training.epochs=1 \
      training.eval_every=10000 training.save_every=10000 training.keep_checkpoints=20 training.save_epochs=false \
      seed=${run#*-s} output_dir=runs/$run
done


# --- Perplexity (table 1)

stack-lm plot training runs/u1-s? runs/lstm-s? --output training.png


# --- Parses (table 3)

stack-lm parse-f1 --ensemble runs/u1-s? --data nltk:treebank --convention prpn --prior right-branching --baselines
stack-lm parse-f1 runs/u1-s? --data nltk:treebank --convention prpn --decoder gap    # and so on

stack-lm parse-f1 models/wikipedia-u1 --data nltk:treebank --convention prpn --output trees.jsonl
python - <<'END'
import json

spans, right = 0, 0
for tree in map(json.loads, open("trees.jsonl")):
    n = len(tree["words"])
    ends = [end == n for start, end, _ in tree["spans"] if 1 < end - start < n]
    spans, right = spans + len(ends), right + sum(ends)
print(f"{right / spans:.1%}")
END

stack-lm parse-f1 runs/u1-s[0-2]/checkpoints/* --data nltk:treebank --convention prpn --json
for model in runs/u1-s[0-2]/checkpoints/*; do stack-lm strengths $model --data nltk:treebank --json; done


# --- Strengths by part of speech

stack-lm inspect models/wikipedia-u1 "The company said that the price of the shares in the market is low ." \
    --figure sentence.png --distributions distributions.png --output page.html
stack-lm strengths models/wikipedia-u1 --data nltk:treebank --figure strengths.png

for run in $nine runs/free-exit-s0; do
    stack-lm strengths $run --data nltk:treebank --json
done > strengths.jsonl

stack-lm inspect models/wikipedia-u1 "the dog that the cats fear runs ." --figure docs/figures/stack.png

python - <<'END'
from itertools import islice
from stack_lm.text import generate_corpus

sentences = (sentence for sentence in generate_corpus(100, seed=1) if 6 < len(sentence.words) < 12)
with open("docs/figures/sentences.mrg", "w") as file:
    for sentence in islice(sentences, 4):
        print(sentence.tree.pformat(margin=10_000), file=file)
END
stack-lm parse-f1 models/wikipedia-free --data docs/figures/sentences.mrg --convention corpus --rule punctuation=kept \
    --output docs/figures/parses.svg

python - <<'END'
from stack_lm import Parser
from stack_lm.parsing import compare_attachments, read_treebank

gold = list(read_treebank("nltk:treebank"))
parses = Parser.from_pretrained("runs/u1-s0")([list(tree.words) for tree in gold])
print(compare_attachments(gold, [parse.tree for parse in parses]))
END


# --- Agreement

stack-lm agreement runs/u1-s? --against runs/lstm-s? --data linzen_sentences --format linzen-gulordava

stack-lm agreement runs/u1-s? --against runs/lstm-s? --data gulordava --format gulordava
stack-lm minimal-pairs runs/u1-s? --against runs/lstm-s? --data marvin_linzen --format marvin-linzen
stack-lm minimal-pairs runs/u1-s? --against runs/lstm-s? --data blimp --format blimp


# --- A larger controller, and three epochs

stack-lm train lm merrill2019/brown_u1 data.source=wiki.txt data.held_out=3000 training.epochs=1 seed=0 \
    model.hidden_size=400 model.embedding_size=200 training.batch_size=32 training.learning_rate=0.002 training.schedule=linear \
    training.warmup_steps=500 training.max_grad_norm=0.5 output_dir=runs/u1-h400     # and merrill2019/brown_lstm


# --- Interventions

text="--data nltk:treebank --limit 500 --shuffles 2"
items="--agreement linzen_sentences/ --format linzen-gulordava"    # we drew 3,000 items
stack-lm interventions runs/u1-s[0-3] $text $items
stack-lm interventions models/wikipedia-free runs/exit-s0 runs/u1-h400 $text $items
