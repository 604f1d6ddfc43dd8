# The larger network on subwords, the base model and their baselines
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- A larger network on subwords

cat > lstm650.yaml <<'END'
model:
  architectures: [DeepStackRNNForCausalLM]
  embedding_size: 256
  output_size: 256
  tie_word_embeddings: true
  layers:
    - {memory: stack, hidden_size: 100, memory_size: 16, push_control: sigmoid, pop_control: expected_value, read_control: expected_value,
       max_push: 3, max_pop: 3, max_read: 3, push_strength_init: 0.5, pop_strength_init: 0.5}
    - {memory: none, hidden_size: 650, inputs: [0, embedding]}
  auxiliary_losses: [{layer: 0, weight: 1.0, head: shared}]
tokenizer: {kind: bpe, vocab_size: 16000, lowercase: first_word}
training: {batch_size: 32, learning_rate: 2.0e-3, warmup_steps: 500, max_grad_norm: 0.5}
END

run="deep/wikipedia_base data.source=wiki.txt data.streaming=false data.held_out=3000 data.validation_limit=null training.epochs=1
    training.max_steps=30000 training.decay_steps=5000 training.eval_every=null training.save_every=1000 training.threads=1 seed=0
    output_dir=runs/base-s0"
stack-lm train lm $run training.softmax_samples=2000    # stopped after 29,000 updates
stack-lm train lm $run --resume
stack-lm agreement runs/base-s0 --data linzen_sentences --format linzen-gulordava    # and so on

run="deep/wikipedia_base training.initial_model=runs/base-s0 data.source=wiki.txt data.streaming=false data.held_out=3000
    data.held_out_seed=0 data.validation_limit=null training.epochs=1 training.max_steps=9000 training.schedule=linear
    training.learning_rate=5e-4 training.warmup_steps=300 training.eval_every=null training.save_every=860 training.threads=1 seed=7
    output_dir=runs/base-further"
stack-lm train lm $run training.softmax_samples=2000    # stopped after 8,600 updates
stack-lm train lm $run --resume

stack-lm perplexity runs/base-s0 --against runs/base-lstm-s0 --data wiki.txt --held-out 3000
stack-lm agreement runs/base-s0 --against runs/base-lstm-s0 --data linzen_sentences --format linzen-gulordava

for model in wikipedia_base wikipedia_base_lstm; do
  run="deep/$model model.layers.0.detach=false data.source=wiki.txt data.streaming=false data.held_out=3000 data.held_out_seed=0
      data.validation_limit=null training.epochs=1 training.max_steps=3900 training.decay_steps=900 training.eval_every=null
      training.save_every=600 training.threads=1 output_dir=runs/$model"
  stack-lm train lm $run training.softmax_samples=2000    # stopped after 3,600 updates
  stack-lm train lm $run --resume
done
stack-lm perplexity runs/wikipedia_base --against runs/wikipedia_base_lstm --data wiki.txt --held-out 3000

stack-lm perplexity runs/base-further --against runs/base-s0 --data wiki.txt --held-out 3000
stack-lm agreement runs/base-further --against runs/base-s0 --data linzen_sentences --format linzen-gulordava


# --- The base model

data="data.source=wiki.txt data.streaming=false data.held_out=3000 data.held_out_seed=0 data.validation_limit=null
    training.eval_every=null"
run="deep/wikipedia_base_384 $data tokenizer.pretrained=runs/base-further training.epochs=1000 training.max_steps=7800
    training.save_every=1000 seed=0 output_dir=runs/base-h100"
stack-lm train lm $run    # continued with --resume where it hung; stopped after 3,019 updates
stack-lm export runs/base-h100/checkpoints/checkpoint-3019 runs/base-gpu    # in half precision
cpu="$data training.epochs=1 training.batch_size=128 model.dropout=0"
stack-lm train lm deep/wikipedia_base_384 $cpu training.initial_model=runs/base-gpu tokenizer.pretrained=runs/base-gpu \
    training.max_steps=2500 training.learning_rate=4.0e-4 training.warmup_steps=50 training.threads=2 seed=11 \
    output_dir=runs/base-cpu

cat > layer.py <<END    # layer.py WHOLE LAYER: the first layer as a model
import sys

import stack_lm
from transformers import AutoModelForCausalLM, AutoTokenizer

whole = AutoModelForCausalLM.from_pretrained(sys.argv[1])
config = whole.config
config.layers = config.layers[:1]
layer = stack_lm.StackTransformerForCausalLM(config)
layer.load_state_dict({name: whole.state_dict()[name] for name in layer.state_dict()})
layer.save_pretrained(sys.argv[2])
AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])
END
cat > put_back.py <<END    # put_back.py WHOLE LAYER OUTPUT: the whole model, with that layer's cell in its first
import random
import sys

import stack_lm
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

whole, layer = (AutoModelForCausalLM.from_pretrained(path) for path in sys.argv[1:3])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
texts = random.Random(0).sample([line.strip() for line in open("wiki.txt") if line.strip()], 4000)

def seen(model, choose):    # by the output layer of the first layer, over the tokens of all texts
    found = []
    output = model.model.layers[0].attention.output
    output.register_forward_hook(lambda module, inputs, result: found.append(choose(inputs[0], result)))
    masks = []
    for start in range(0, len(texts), 50):
        batch = tokenizer(texts[start : start + 50], padding=True, return_tensors="pt")
        masks.append(batch["attention_mask"].bool())
        with torch.no_grad():
            model(**batch)
    return torch.cat([values[mask] for values, mask in zip(found, masks)]).double()

wanted, outputs = seen(whole, lambda inputs, result: result), seen(layer, lambda inputs, result: inputs)
fit = torch.linalg.lstsq(torch.cat([outputs, torch.ones(len(outputs), 1)], dim=1), wanted).solution.float()
config, trained = whole.config, ("model.layers.0.attention", "auxiliary_heads.0")
config.layers = layer.config.layers + config.layers[1:]
changed = stack_lm.StackTransformerForCausalLM(config)
weights = {name: value for name, value in whole.state_dict().items() if not name.startswith(trained)}
weights |= {name: value for name, value in layer.state_dict().items() if name.startswith(trained)}
weights |= {"model.layers.0.attention.output.weight": fit[:-1].T, "model.layers.0.attention.output.bias": fit[-1]}
changed.load_state_dict(weights)
changed.save_pretrained(sys.argv[3])
tokenizer.save_pretrained(sys.argv[3])
END
cat > alone.yaml <<END
extends: base.yaml
model:
  dropout: 0
  layers:
    - {controller: lstm, hidden_size: 100, memory: stack, memory_size: 16, push_control: sigmoid, pop_control: expected_value,
       read_control: expected_value, max_push: 3, max_pop: 3, max_read: 3, push_strength_init: 0.5, pop_strength_init: 0.5,
       detach: true}
training: {batch_size: 16, optimizer: adam, weight_decay: 0, learning_rate: 1.0e-3, schedule: constant, warmup_steps: 0,
           max_grad_norm: 0.5, mixed_precision: null, softmax_samples: 2000, freeze: [model.embed_tokens, lm_head]}
END
stack-lm presets show deep/wikipedia_base_384 > base.yaml
python layer.py runs/base-cpu runs/layer
stack-lm train lm alone.yaml $data training.initial_model=runs/layer tokenizer.pretrained=runs/layer training.epochs=1 \
    training.max_steps=7840 training.threads=1 seed=20 output_dir=runs/layer-alone
python put_back.py runs/base-cpu runs/layer-alone runs/base-joined
stack-lm export runs/base-joined runs/base-half    # in half precision
stack-lm train lm deep/wikipedia_base_384 $cpu training.initial_model=runs/base-half tokenizer.pretrained=runs/base-half \
    training.max_steps=4000 training.learning_rate=3.0e-4 training.warmup_steps=100 training.threads=2 seed=21 \
    'training.freeze=[model.layers.0.attention.cell, model.embed_tokens, lm_head]' \
    'model.auxiliary_losses=[{layer: 0, head: shared, weight: 0}]' output_dir=runs/base-more
stack-lm train lm deep/wikipedia_base_384 $cpu training.initial_model=runs/base-more tokenizer.pretrained=runs/base-more \
    training.max_steps=6000 training.learning_rate=5.0e-4 training.warmup_steps=100 training.threads=2 seed=22 \
    'training.freeze=[model.layers.0.attention_norm, model.layers.0.attention.cell, model.embed_tokens, lm_head]' \
    'model.auxiliary_losses=[{layer: 0, head: shared, weight: 0}]' output_dir=runs/base    # stopped, then 5000 and --resume
sed -i 's/"weight": 0.0/"weight": 1.0/' runs/base/config.json    # of the stack RNN's own loss, for those who train further
stack-lm perplexity runs/base --against runs/base-further --data wiki.txt --held-out 3000    # and --against runs/base-more
stack-lm agreement runs/base --against runs/base-further --data linzen_sentences --format linzen-gulordava    # and so on

mkdir blimp-sample
for set in blimp/data/*.jsonl; do head -c 48000 $set | sed '$d' > blimp-sample/$(basename $set); done
for model in models/wikipedia-{base,lstm,trees} $nine runs/free-exit-s0 runs/transformer-stack-all; do
    stack-lm minimal-pairs $model --data blimp-sample --format blimp --json
done > blimp.jsonl


# A vocabulary of ordinary text, for wikipedia-base trained further
python - <<END
from stack_lm.text.tokenization.subwords import train_subword_tokenizer

lines = ((line.split(), None) for line in open("wiki.txt") if line.strip())
train_subword_tokenizer(lines, 16000, detokenize=True).save_pretrained("runs/ordinary")
END
cat > transplant.py <<'END'
# transplant.py MODEL TOKENIZER OUTPUT: the model with another vocabulary
import sys

import stack_lm
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
old, new = (AutoTokenizer.from_pretrained(path) for path in sys.argv[1:3])
known, clitics = old.get_vocab(), {"n't", "'s", "'re", "'ve", "'ll", "'d", "'m", "not"}

def rows(token):    # of the old embedding, whose mean begins the new one's
    text = new.backend_tokenizer.decoder.decode([token])
    lower = "Ġ" + token[1:].lower()
    if token.startswith("Ġ"):
        if token in known or (token[1:].istitle() and lower in known):
            return [known.get(token, known.get(lower))]
    elif "Ġ" + token in known and (token in clitics or not any(map(str.isalnum, text))):    # no space before them now
        return [known["Ġ" + token]]
    return [known[token]] if token in known else old(text.strip() or text, add_special_tokens=False).input_ids or [known["Ġ"]]

tokens = sorted(new.get_vocab(), key=new.get_vocab().get)
taken = [rows(token) for token in tokens]
for weight in {id(p): p for name, p in model.named_parameters() if p.shape[:1] == (len(known),)}.values():
    weight.data = torch.stack([weight.data[each].mean(0) for each in taken])
model.config.vocab_size = len(tokens)
model.save_pretrained(sys.argv[3])
new.save_pretrained(sys.argv[3])
END
python transplant.py models/wikipedia-base runs/ordinary runs/start
for seed in 0 1; do
  run="deep/wikipedia_base_384 $data training.initial_model=runs/start tokenizer.pretrained=runs/start training.epochs=1
      training.batch_size=64 model.dropout=0 model.attn_implementation=eager training.schedule=constant training.learning_rate=5e-4
      training.warmup_steps=100 training.max_steps=7600 training.decay_steps=5200 training.save_every=400 training.threads=1
      seed=$seed output_dir=runs/ordinary-s$seed"
  stack-lm train lm $run training.softmax_samples=2000    # stopped after 6,200 updates
  stack-lm train lm $run --resume
done
cat > mean.py <<'END'
# mean.py OUTPUT MODEL...: the mean of the weights, with the first model's other files
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

output, paths = Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]]
weights = [load_file(path / "model.safetensors") for path in paths]
mean = {name: (sum(each[name].double() for each in weights) / len(weights)).float() for name in weights[0]}
shutil.copytree(paths[0], output)
save_file(mean, output / "model.safetensors", metadata={"format": "pt"})
END
python mean.py runs/ordinary-mean runs/ordinary-s{0,1}
stack-lm perplexity runs/ordinary-{s0,s1,mean} models/wikipedia-base --data wiki.txt --held-out 3000
stack-lm minimal-pairs runs/ordinary-{s0,s1,mean} --data blimp-sample --format blimp    # agreement, parse-f1 as above
python benchmarks/reading_times.py stories/ runs/ordinary-mean models/wikipedia-base
python - <<'END'    # ordinary text, as transformers' tokenizers read it
import math
import re

import stack_lm
import torch
from stack_lm.text.corpora import hold_out
from transformers import AutoModelForCausalLM, AutoTokenizer

def typographic(text):
    text = re.sub(r'(^|[\s(\[—])"', r"\1“", text).replace('"', "”")
    return re.sub(r"(^|[\s(\[—“])'", r"\1‘", text).replace("'", "’").replace("...", "…")

own = AutoTokenizer.from_pretrained("runs/ordinary-s0")
held = hold_out([line.strip() for line in open("wiki.txt") if line.strip()], 3000, 0)[1][:800]
plain = [own.decode(own(text).input_ids, skip_special_tokens=True).strip() for text in held]
for path in ("runs/ordinary-s0", "models/wikipedia-base"):
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path).eval()
    for texts in (plain, [typographic(text) for text in plain], held):
        bits = 0.0
        for text in texts:
            ids = torch.tensor([[1] + [i for i in tokenizer(text).input_ids if i != 1]])
            with torch.no_grad():
                logprobs = model(ids).logits[0, :-1].log_softmax(-1)
            bits -= float(logprobs.gather(1, ids[0, 1:, None]).sum()) / math.log(2)
        print(path, bits / sum(map(len, plain)))
END


# Two rounds of two runs further, on its own vocabulary; means of weights
further="$data tokenizer.pretrained=models/wikipedia-base training.epochs=1 training.batch_size=64 model.dropout=0
    model.attn_implementation=eager training.learning_rate=5e-4 training.warmup_steps=100 training.threads=1
    training.save_every=250 training.keep_checkpoints=20"
for seed in 0 1; do
  stack-lm train lm deep/wikipedia_base_384 $further training.initial_model=models/wikipedia-base training.max_steps=3000 \
      training.softmax_samples=2000 seed=$seed output_dir=runs/further-s$seed
done
python mean.py runs/further runs/further-s?/checkpoints/checkpoint-{2250,2500,2750,3000}
cp models/wikipedia-base/tokenizer* runs/further
for seed in 2 3; do    # stopped after 225 and 230 updates of 3,600, and resumed with 2,600
  stack-lm train lm deep/wikipedia_base_384 $further training.initial_model=runs/further training.schedule=linear \
      training.max_steps=2600 seed=$seed output_dir=runs/further-s$seed
done
python mean.py runs/further-mean runs/further-s{2,3}
python mean.py runs/further-and-base runs/further-mean models/wikipedia-base
stack-lm perplexity runs/further{,-s2,-s3,-mean,-and-base} models/wikipedia-base --data wiki.txt --held-out 3000
stack-lm minimal-pairs runs/further-and-base --against models/wikipedia-base --data blimp/data --format blimp    # the sample, agreement, parse-f1, reading times as above


# --- A baseline of the base model

cat > wide.yaml <<'END'
extends: base.yaml
model: {hidden_size: 384, intermediate_size: 1536, num_attention_heads: 6, layers: {5: attention, 6: attention}}
END

stack-lm presets show deep/wikipedia_base > base.yaml
for seed in 0 1; do
  run="wide.yaml tokenizer.pretrained=models/wikipedia-base data.source=wiki.txt data.streaming=false data.held_out=3000
      data.held_out_seed=0 data.validation_limit=null training.epochs=1 training.max_steps=3900 training.decay_steps=900
      training.eval_every=null training.save_every=300 training.mixed_precision=bf16 training.threads=1 seed=$seed"
  lstm="model.layers.0.memory=none model.layers.0.hidden_size=103 output_dir=runs/tenth-lstm-s$seed"
  for network in "output_dir=runs/tenth-s$seed" "$lstm"; do
    stack-lm train lm $run $network training.softmax_samples=2000    # stopped after 3,600 updates
    stack-lm train lm $run $network --resume
  done
done
stack-lm perplexity runs/tenth-s? --against runs/tenth-lstm-s? --data wiki.txt --held-out 3000    # and --data nltk:treebank
stack-lm agreement runs/tenth-s? --against runs/tenth-lstm-s? --data linzen_sentences --format linzen-gulordava
stack-lm minimal-pairs runs/tenth-s? --against runs/tenth-lstm-s? --data blimp-sample --format blimp
stack-lm parse-f1 runs/tenth-s? --data nltk:treebank --convention prpn    # and merrill


# --- After all of the text, the layers above do not tell the two apart

cat > fresh.py <<END    # fresh.py WHOLE LAYER SEED OUTPUT: the first layer as a model, new, under the embedding of the whole
import sys

import stack_lm
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

whole = AutoModelForCausalLM.from_pretrained(sys.argv[1])
config = whole.config
config.layers = [yaml.safe_load(sys.argv[2])]
torch.manual_seed(int(sys.argv[3]))
layer = stack_lm.StackTransformerForCausalLM(config)
kept = {name: value for name, value in whole.state_dict().items() if name.startswith(("model.embed_tokens", "lm_head"))}
layer.load_state_dict(layer.state_dict() | kept)
layer.save_pretrained(sys.argv[4])
AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[4])
END
stack="{controller: lstm, hidden_size: 100, memory: stack, memory_size: 16, push_control: sigmoid, pop_control: expected_value,
    read_control: expected_value, max_push: 3, max_pop: 3, max_read: 3, push_strength_init: 0.5, pop_strength_init: 0.5, detach: true}"
lstm="{controller: lstm, hidden_size: 103, memory: none, detach: true}"
base=models/wikipedia-base
others="attention, attention, attention, attention, attention, attention"
for seed in 30 31; do
  for cell in stack lstm; do
    name=$cell-s$seed
    python fresh.py $base "${!cell}" $seed runs/new-$name
    stack-lm train lm alone.yaml "model.layers=[${!cell}]" $data training.initial_model=runs/new-$name \
        tokenizer.pretrained=runs/new-$name training.epochs=1 training.max_steps=15680 training.decay_steps=1960 \
        training.threads=1 seed=$seed output_dir=runs/cell-$name
    python put_back.py $base runs/cell-$name runs/put-$name
    stack-lm train lm deep/wikipedia_base_384 "model.layers=[${!cell}, $others]" $cpu training.initial_model=runs/put-$name \
        tokenizer.pretrained=runs/put-$name training.max_steps=600 training.learning_rate=5.0e-4 training.warmup_steps=50 \
        training.threads=1 seed=$seed output_dir=runs/over-$name \
        'training.freeze=[model.layers.0.attention_norm, model.layers.0.attention.cell, model.embed_tokens, lm_head]' \
        'model.auxiliary_losses=[{layer: 0, head: shared, weight: 0}]'
  done
done
stack-lm perplexity runs/over-stack-s3? --against runs/over-lstm-s3? --data wiki.txt --held-out 3000    # and --data nltk:treebank
stack-lm agreement runs/over-stack-s3? --against runs/over-lstm-s3? --data linzen_sentences --format linzen-gulordava
stack-lm minimal-pairs runs/over-stack-s3? --against runs/over-lstm-s3? --data blimp-sample --format blimp
