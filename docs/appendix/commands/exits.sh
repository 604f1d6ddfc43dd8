# Initial strengths, and exits for the reading
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- Where the strengths start

stack-lm train lm data.source=wiki20k.txt training.epochs=3 model.push_strength_init=0.5 seed=0 output_dir=runs/few-s0
stack-lm train lm data.source=text.txt training.epochs=8 tokenizer.lowercase=none training.loss_dtype=float32 \
    model.push_strength_init=null seed=0 output_dir=runs/english-s0      # and so on
stack-lm parse-f1 runs/few-s0 --data nltk:treebank --convention prpn


# --- Towards a stack that beats its LSTM

stack-lm train lm merrill2019/brown_lstm --import examples/shortcut_control.py model.architectures=[ShortcutForCausalLM] \
    data.source=wiki.txt data.held_out=3000 training.max_steps=7840 seed=0 output_dir=runs/shortcut-s0
# and seeds 1 and 2; on all of the text: model.shortcut_size=60 training.epochs=1 training.decay_steps=8415; the exit: merrill2019/brown_u1 model.reading_exit=output; scores: eval_word_perplexity, the last line of metrics.jsonl
stack-lm agreement runs/shortcut-all-s0 --import examples/shortcut_control.py --data linzen_sentences --format linzen-gulordava
# An exit with fixed strengths: model.push_control=1.0 model.push_strength_init=null model.pop_control=1.0 model.read_control=1.0

stack-lm train lm merrill2019/brown_u1 data.source=wiki.txt data.held_out=3000 training.epochs=1 seed=0 \
    model.reading_exit=output training.decay_steps=8415 output_dir=runs/exit-s0
stack-lm train lm merrill2019/brown_lstm data.source=wiki.txt data.held_out=3000 training.epochs=1 seed=0 \
    training.decay_steps=8415 output_dir=runs/lstm-falls-s0     # and so on
stack-lm perplexity runs/exit-s? --against runs/lstm-falls-s? --data wiki.txt --held-out 3000
stack-lm agreement runs/exit-s? --against runs/lstm-falls-s? --data linzen_sentences --format linzen-gulordava

for seed in 3 4; do
  stack-lm train lm merrill2019/brown_free data.source=wiki.txt data.held_out=3000 training.epochs=1 seed=$seed \
      training.eval_every=10000 training.save_every=10000 training.save_epochs=false training.decay_steps=8415 \
      output_dir=runs/free-falls-s$seed
done


# --- An exit that opens late

run="merrill2019/brown_free model.reading_exit=output data.source=wiki.txt data.held_out=3000 training.epochs=1
    training.save_every=10000 seed=0 output_dir=runs/open-s0"
stack-lm train lm $run 'training.freeze=[model.reading_exit]' training.max_steps=70000   # or 60000, or 40000
stack-lm train lm $run training.decay_steps=8415 --resume
# 60 tanh units: the shortcut's network above on all of the text, with 'training.freeze=[model.shortcut_in,model.shortcut_out]' until 60,000
stack-lm train lm merrill2019/brown_lstm model.hidden_size=101 data.source=wiki.txt data.held_out=3000 training.epochs=1 \
    training.decay_steps=8415 seed=3 output_dir=runs/lstm-101-s3

further="data.source=wiki.txt data.held_out=3000 training.epochs=1 training.max_steps=8415 training.decay_steps=8415"
stack-lm train lm $further training.initial_model=models/wikipedia-free model.reading_exit=output seed=0 output_dir=runs/free-exit-s0
stack-lm train lm $further training.initial_model=models/wikipedia-lstm seed=0 output_dir=runs/lstm-further-s0
