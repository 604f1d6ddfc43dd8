# A small stack under an LSTM
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- A small stack under an LSTM

cat > own.yaml <<'END'
model:
  architectures: [DeepStackRNNForCausalLM]
  embedding_size: 100
  layers:
    - {memory: stack, hidden_size: 100, memory_size: 16, push_control: expected_value, pop_control: 1.0, read_control: expected_value,
       max_push: 3, max_pop: 3, max_read: 3, push_strength_init: 0.5}
    - {memory: none, hidden_size: 400, inputs: [0, embedding], detach: true}
  auxiliary_losses: [{layer: 0, weight: 1.0, head: own}]
tokenizer: {vocab_size: 10000, lowercase: first_word}
training: {batch_size: 16, learning_rate: 1.0e-3, max_grad_norm: 0.5}
END

common="data.source=wiki.txt data.streaming=false data.held_out=3000 data.held_out_seed=0 training.epochs=1 training.eval_every=null"
tenth="$common training.max_steps=7840"
lstm="model.layers.0.memory=none model.layers.0.hidden_size=101"
free="model.layers.0.push_control=sigmoid model.layers.0.pop_control=expected_value model.layers.0.pop_strength_init=0.5"
for seed in {0..22}; do
    stack-lm train lm own.yaml $tenth seed=$seed output_dir=runs/own-s$seed
done
for seed in 0 1 2; do
    stack-lm train lm own.yaml $tenth seed=$seed $lstm output_dir=runs/own-lstm-s$seed
done
stack-lm train lm own.yaml $tenth 'model.layers.1.inputs=[0, 0.reading, embedding]' output_dir=runs/own-reading-s0
stack-lm train lm own.yaml $tenth model.auxiliary_losses.0.weight=0.3 output_dir=runs/own-w03-s0
stack-lm train lm own.yaml $tenth model.layers.0.hidden_size=50 output_dir=runs/own-h50-s0
stack-lm train lm own.yaml $tenth model.layers.0.hidden_size=200 output_dir=runs/own-h200-s0
stack-lm train lm own.yaml $tenth model.layers.1.hidden_size=650 output_dir=runs/own-top650-s0
stack-lm train lm own.yaml $tenth $free output_dir=runs/own-free-s0
long="$common training.batch_size=32"
stack-lm train lm own.yaml $long output_dir=runs/own-long-s0
for seed in 0 1; do
    stack-lm train lm own.yaml $long seed=$seed model.layers.1.detach=false output_dir=runs/own-long-joint-s$seed
    stack-lm train lm own.yaml $long seed=$seed model.layers.1.detach=false $lstm output_dir=runs/own-long-joint-lstm-s$seed
done
stack-lm perplexity runs/own-s0 --data wiki.txt --held-out 3000 --json >> own.jsonl
stack-lm parse-f1 runs/own-s0 --data nltk:treebank --convention merrill --decoder gap --json >> own.jsonl
stack-lm strengths runs/own-s0 --data nltk:treebank --json >> own.jsonl
stack-lm agreement runs/own-s0 --data linzen_sentences --format linzen-gulordava --json >> own.jsonl    # and so on

stack-lm perplexity runs/own-s{0,1,2} --against runs/own-lstm-s{0,1,2} --data wiki.txt --held-out 3000
stack-lm agreement runs/own-s0 --against runs/own-lstm-s0 --data linzen_sentences --format linzen-gulordava
for convention in prpn merrill; do    # "agreement", "mutual_f1", "outliers"
    stack-lm parse-f1 --ensemble $nine runs/own-s{?,1?,20,22} --data nltk:treebank \
        --convention $convention --prior right-branching --json > votes-$convention.json
done
head -n 1000 sentences.txt > some.txt    # those that the parser below learns from
stack-lm parse runs/own-s0 --ensemble runs/own-s{[1-9],1?,20,22} --data some.txt --json

python - <<END
import itertools, json, statistics

ensemble, scores = (json.load(open("docs/appendix/reports/votes-prpn.json"))[key] for key in ("ensemble", "systems"))
mutual, seeds = ensemble["mutual_f1"], [i for i, name in enumerate(ensemble["runs"]) if "own" in name]
for k in (3, 5):
    choices = list(itertools.combinations(seeds, k))
    chosen = [max(some, key=lambda i: sum(mutual[i][j] for j in some)) for some in choices]
    f1 = sorted(scores[i]["f1"] for i in chosen)
    best = sum(scores[i]["f1"] == max(scores[j]["f1"] for j in some) for i, some in zip(chosen, choices)) / len(choices)
    print(k, len(choices), statistics.median(f1), statistics.mean(f1), f1[len(f1) // 20], best)
END
