# Subwords, nondeterministic stacks and transformers
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- Subwords

stack-lm train lm merrill2019/brown_u1 data.source=sixth.txt data.validation=others.txt training.epochs=2 \
    training.max_grad_norm=0.5 tokenizer.kind=bpe tokenizer.vocab_size=16000 output_dir=runs/bpe    # words: without tokenizer.*
stack-lm perplexity runs/bpe --data others.txt
stack-lm parse-f1 runs/bpe --data nltk:treebank --convention prpn --decoder gap             # and so on


# --- Nondeterministic stacks

cat > rns.yaml <<'END'
model: {controller: lstm, embedding_size: 50, hidden_size: 100, memory: nondeterministic, memory_states: 2, memory_symbols: 3,
  memory_window: 35}
tokenizer: {lowercase: first_word}
training: {batch_size: 16, learning_rate: 0.001}
END

common="data.source=tenth.txt data.validation=others.txt tokenizer.vocab_size=10000 training.epochs=1 training.max_grad_norm=0.5"
stack-lm train lm merrill2019/brown_lstm $common model.hidden_size=101 output_dir=runs/lstm
stack-lm train lm merrill2019/brown_u1 $common output_dir=runs/u1
stack-lm train lm rns.yaml $common output_dir=runs/rns
# The superposition stack: rns.yaml with model: {memory: superposition, memory_size: 16, no_op: true, memory_depth: 10,
#     memory_overflow: truncate}
stack-lm train lm rns.yaml $common model.memory_states=1 model.memory_symbols=1 model.memory_size=32 output_dir=runs/vrns
stack-lm agreement runs/rns --data linzen_sentences --format linzen-gulordava          # and so on
stack-lm parse-f1 runs/rns --data nltk:treebank --convention prpn --decoder gap    # and so on

stack-lm train lm rns.yaml data.source=wiki.txt data.held_out=3000 tokenizer.vocab_size=10000 training.epochs=1 output_dir=runs/rns-whole


# --- Transformers with a stack

common="data.source=tenth.txt data.streaming=false data.validation=others.txt data.validation_limit=null
    tokenizer.lowercase=first_word training.epochs=1 training.max_steps=null training.eval_every=null"
stack-lm train lm dusell2024/wikipedia_transformer_stack $common output_dir=runs/transformer-stack   # and so on
stack-lm train lm merrill2019/wikipedia_u1 $common training.max_grad_norm=0.5 output_dir=runs/u1
stack-lm parse-f1 runs/transformer-stack --data nltk:treebank --convention prpn --decoder gap    # and so on
stack-lm agreement runs/transformer-stack --data linzen_sentences --format linzen-gulordava

stack-lm train lm dusell2024/wikipedia_transformer_stack data.source=wiki.txt data.streaming=false data.held_out=3000 \
    data.validation_limit=null tokenizer.lowercase=first_word training.epochs=1 training.max_steps=null training.eval_every=null \
    output_dir=runs/transformer-stack-all


# --- A stack RNN under a transformer

cell="controller: lstm, hidden_size: 100, memory: stack, memory_size: 16, push_control: expected_value, pop_control: 1.0"
stack-lm train lm dusell2024/wikipedia_transformer $common model.position_encoding=rotary \
    "model.layers=[{$cell, push_strength_init: 0.5, detach: true}, attention, attention, attention, attention]" \
    'model.auxiliary_losses=[{layer: 0}]' output_dir=runs/under


# --- Networks of 2026 as language models

data="data.source=wiki.txt data.streaming=false data.held_out=3000 data.validation_limit=null training.eval_every=null training.threads=1"
for network in lstm stack_rnn xlstm mamba2 gated_delta gated_delta_stack transformer transformer_stack deltastack; do
  stack-lm train lm networks2026/text_$network $data output_dir=runs/$network    # the last line of metrics.jsonl
done
stack-lm train lm networks2026/text_lstm $data seed=1 data.held_out_seed=0 output_dir=runs/lstm-s1    # and so on
stack-lm parse-f1 runs/stack_rnn runs/transformer_stack runs/gated_delta_stack --data nltk:treebank --convention prpn
# Tokens a second: medians of tokens_per_second, one network after another.
stack-lm train lm networks2026/text_lstm $data training.max_steps=100 training.log_every=10 output_dir=runs/lstm-speed      # and so on
# Batches of similar length, at other rates, of all the tenth and 980 updates; xlstm and mamba2 with training.batch_size=32
# training.gradient_accumulation=1. Then 980 updates of the presets.
similar="$data training.packing=false"
stack-lm train lm networks2026/text_lstm $similar training.learning_rate=0.002 output_dir=runs/lstm-0.002    # and so on
stack-lm train lm networks2026/text_lstm $similar training.learning_rate=0.016 training.max_steps=980 output_dir=runs/lstm-short   # and so on
stack-lm train lm networks2026/text_lstm $data training.max_steps=980 output_dir=runs/lstm-packed    # stack_rnn at 0.016, transformer
# Batches by tokens, and updates of several batches
stack-lm train lm networks2026/text_lstm $similar training.tokens_per_batch=816 output_dir=runs/lstm-tokens
stack-lm train lm networks2026/text_lstm $similar training.batch_size=8 training.gradient_accumulation=4 output_dir=runs/lstm-parts
# All of the text once; also gated_delta_stack
stack-lm train lm networks2026/text_lstm $similar training.epochs=1 training.max_steps=null output_dir=runs/lstm-epoch
stack-lm agreement runs/lstm-epoch --data linzen_sentences --format linzen-gulordava      # and so on
stack-lm train lm merrill2019/brown_lstm data.source=wiki.txt data.held_out=3000 training.max_steps=7840 \
    training.schedule=cosine training.warmup_steps=200 training.learning_rate=0.01 output_dir=runs/lstm-0.01    # and brown_u1, brown_free
# the exit: brown_u1 model.reading_exit=output; tanh units: as in exits.sh, with model.shortcut_size=60
