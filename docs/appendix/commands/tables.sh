# The papers' experiments with formal languages
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- Hao et al. (2018), table 1

stack-lm train task hao2018/table1
stack-lm results runs/hao2018-table1 --format markdown

stack-lm tasks score reverse.csv runs/hao2018-table1/models/R/*   # parity.csv, dyck.csv, agreement.csv


# --- Early stopping

stack-lm train task hao2018/table1 --rows "^(XOR, yes|formula, no, linear)" training.patience=null \
    output_dir=runs/hao2018-no-stopping
stack-lm results runs/hao2018-no-stopping --rows "^(XOR, yes|formula, no, linear)"


# --- The start of the stack

n=0
for start in read_order=before_push push_strength_init=0.26894142 push_strength_init=0.73105858 pop_strength_init={0.5,0.1} \
    "read_control=sigmoid model.read_strength_init=0.26894142" "read_control=sigmoid model.read_strength_init=0.73105858"; do
    stack-lm train task hao2018/table1 --rows '^(reversal|XOR, no, linear).*yes$' model.$start output_dir=runs/starts-$((n++))
done
reduced="grefenstette2015/reduced --seeds 10"
stack-lm train task $reduced --rows '^(reversal, Stack|copy, DeQue)' model.read_order=before_push output_dir=runs/starts-before
stack-lm train task $reduced --rows '^reversal, Stack' model.read_control=sigmoid model.read_strength_init=0.26894142 \
    output_dir=runs/starts-dead

python - <<END
import json
from pathlib import Path

from stack_lm.core.checks import build
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.scores import measure_dead_zone
from stack_lm.training.trials.trial import Trial

for path in Path("runs").glob("starts-*/results.jsonl"):
    for record in map(json.loads, path.open()):
        trial = Trial(build(TaskConfig, record["config"]))
        trial.model.eval()
        strings = trial.encoding.task.split("train", record["seed"])[:32]
        zone = measure_dead_zone(trial.model, trial.encoding, trial.encoding.encode(strings))
        print(record["row"], record["seed"], zone.older_share, zone, record["scores"]["test"])
END

for push in 0.5 1.0; do
    stack-lm train lm merrill2019/brown_u1 training.max_steps=1 model.push_strength_init=$push output_dir=runs/push-$push
    stack-lm inspect runs/push-$push "the dog that the cats fear barks loudly" --output push.html
done


# --- Suzgun et al. (2019), table 2: Dyck-2

stack-lm train task suzgun2019/dyck2
stack-lm results runs/suzgun2019-dyck2 --format markdown


# --- Suzgun et al. (2019), table 2: 40 seeds of the Stack-RNN with softmax

stack-lm train task suzgun2019/dyck2 --rows '^Stack-RNN . softmax$' --seeds 40 --together 40 output_dir=runs/dyck2-40
stack-lm results runs/dyck2-40 --format markdown


# --- Suzgun et al. (2019), table 3: Dyck-3

stack-lm train task suzgun2019/dyck3 --rows '^(?!.*Gumbel)' --seeds 5
stack-lm results runs/suzgun2019-dyck3 --format markdown


# --- Suzgun et al. (2019), table 4: Dyck-6

stack-lm train task suzgun2019/dyck6 --rows '^(?!.*Gumbel)' --seeds 5
stack-lm results runs/suzgun2019-dyck6 --format markdown

stack-lm train task suzgun2019/dyck6 --rows '^(Stack-RNN|Baby-NTM) . softmax$' --seeds 5 \
    training.learning_rate=0.003 output_dir=runs/dyck6-lower


# --- Suzgun et al. (2019), table 5 and section 6.2: palindromes

stack-lm train task suzgun2019/palindromes --rows '^(?!.*Gumbel)' --seeds 5
stack-lm results runs/suzgun2019-palindromes --format markdown


# --- Suzgun et al. (2019), table 6: string reversal

stack-lm train task suzgun2019/reversal --rows '^(?!.*Gumbel)' --seeds 5
stack-lm results runs/suzgun2019-reversal --format markdown


# --- Grefenstette et al. (2015), figure 2a, at a reduced size, and two rows at full size

stack-lm train task grefenstette2015/reduced --together 20
stack-lm results runs/grefenstette2015-reduced --format markdown
for row in "copy, Queue" "reversal, Stack"; do   # 8 minutes for copying on a quiet core
    stack-lm train task grefenstette2015/full --rows "$row" --seeds 1 --resume training.learning_rate=1e-3 training.solved_patience=2 \
        training.patience=25
done


# Where pops start: seeds whose validation strings are right (0.98 or more), and their test strings

slow="grefenstette2015/reduced --seeds 10 training.learning_rate=1e-3 training.epochs=30"
stack-lm train task $slow --rows '^(copy|reversal), DeQue|^reversal, Stack' output_dir=runs/pops-paper
stack-lm train task $slow --rows '^(copy|reversal|bigram flipping), DeQue' model.bottom_strength_init=0.05 output_dir=runs/pops-bottom
stack-lm train task $slow --rows '^(copy|reversal), DeQue' model.pop_strength_init=0.05 model.bottom_strength_init=0.05 \
    output_dir=runs/pops-both
stack-lm train task $slow --rows '^reversal, Stack' model.pop_strength_init=0.05 output_dir=runs/pops-stack
for run in runs/pops-*; do stack-lm results $run; done

# The same at full size, a minute or two per epoch of 10,000 strings

full="grefenstette2015/full --seeds 1 training.learning_rate=1e-3 training.solved_patience=2 training.patience=60"
stack-lm train task $full --rows '^(SVO to SOV|gender), Queue' output_dir=runs/full-paper
stack-lm train task $full --rows '^(SVO to SOV|gender), Queue' model.pop_strength_init=0.05 output_dir=runs/full-rest
stack-lm train task $full --rows '^gender, Queue' model.pop_strength_init=0.05 training.learning_rate=5e-3 output_dir=runs/full-gender
stack-lm train task $full --rows '^(copy, Stack|reversal, (Queue|DeQue))' output_dir=runs/full-others
stack-lm train task $full --rows '^reversal, DeQue' --seeds 3 training.learning_rate=5e-3 output_dir=runs/full-deque
stack-lm train task $full --rows '^copy, DeQue' --seeds 3 model.bottom_strength_init=0.05 output_dir=runs/full-bottom
stack-lm train task $full --rows '^copy, DeQue' model.bottom_strength_init=0.05 model.pop_strength_init=0.05 output_dir=runs/full-both
for task in svo_sov gender; do
    stack-lm train task grefenstette2015/lstm_2_layers_256 grefenstette2015/$task --seeds 1 training.learning_rate=1e-3 \
        training.epochs=100 output_dir=runs/full-lstm-$task
done


# --- DuSell and Chiang (2020): languages with an exact bound

stack-lm train task dusell2020/bounds --rows '^(marked|unmarked|Dyck)' --seeds 5 \
    'training.learning_rate=[0.01, 0.005, 0.005, 0.003, 0.002]'
stack-lm results runs/dusell2020-bounds --format markdown

rest="--seeds 3 training.learning_rate=[0.01,0.005,0.003] training.epochs=25 training.patience=6"
stack-lm train task dusell2020/bounds --rows '^(padded|hardest).*(stack|superposition)$' $rest
for start in model.pop_strength_init=0.05 model.read_order=before_push model.pop_strength_init=null; do    # the last is the paper's
  stack-lm train task dusell2020/bounds --rows '^(unmarked|padded|hardest).*, LSTM . stack$' $rest $start output_dir=runs/$start
done


# --- The nondeterministic stack on the same languages

rns="model.normalize_actions=false model.read_states=true model.memory_symbols=3 model.bottom=open"
short="options.splits.train.shortest=5 options.splits.validation.shortest=5 options.splits.test.shortest=5"
short="$short options.splits.train.longest=20 options.splits.validation.longest=20 options.splits.test.longest=20"
middle="options.splits.train.shortest=10 options.splits.validation.shortest=10 options.splits.test.shortest=10"
middle="$middle options.splits.train.longest=50 options.splits.validation.longest=50 options.splits.test.longest=50"
stack-lm train task dusell2020/nondeterministic dusell2020/marked_reversal $rns $short --seeds 1 \
    training.epochs=5 training.learning_rate=0.01 output_dir=runs/short
stack-lm train task dusell2020/nondeterministic dusell2020/marked_reversal $rns $middle --seeds 1 \
    training.epochs=6 training.learning_rate=0.005 training.initial_model=runs/short/models/1/0 output_dir=runs/middle
stack-lm train task dusell2020/nondeterministic dusell2020/marked_reversal $rns --seeds 1 \
    training.epochs=10 training.learning_rate=0.005 training.initial_model=runs/middle/models/1/0 output_dir=runs/long   # and so on


# --- DuSell and Chiang (2024): LSTMs and transformers

stack-lm train task dusell2024/languages --seeds 3 training.epochs=6 'training.learning_rate=[0.005, 0.002, 0.001]' \
    'options.splits={train: {shortest: 20, longest: 40}, validation: {shortest: 20, longest: 40},
    test: {shortest: 20, longest: 60}}'


# --- DuSell and Chiang (2023): languages that are not context-free, and many types of symbols

stack-lm train task dusell2023/languages --rows '^(a|w #|w w.,).*(LSTM|superposition)$' --seeds 2 \
    'training.learning_rate=[0.01, 0.005]' training.epochs=15 training.patience=5
stack-lm train task dusell2023/capacity --rows '^marked reversal, (LSTM|LSTM . superposition 3|VRNS 1-1-3)$' --seeds 1 \
    training.learning_rate=0.005 training.epochs=10


# --- Delétang et al. (2023): regular and deterministic context-free tasks

stack-lm train task deletang2023/small
stack-lm results runs/deletang2023-small
cp -r docs/appendix/trials/deletang2023-small runs/medians
sed -i -e '1,/^columns/{/^columns/!d}' -e 's/length_accuracy.maximum/length_accuracy.median/' runs/medians/table.yaml
sed -i '1i title: "Delétang et al. (2023): accuracy averaged over lengths 41 to 500"' runs/medians/table.yaml
stack-lm plot results runs/medians --output docs/figures/hierarchy.png

stack-lm train task deletang2023/hierarchy --rows '^stack manipulation, Stack-RNN$' --seeds 5 training.epochs=15 \
    training.learning_rate=0.001 training.solved_patience=2 \
    model.controller=rnn model.initialization=torch model.push_value_activation=tanh output_dir=runs/tanh


# --- A layer that learns

for options in "" "--updates 1000" "--read-order after_push" "--one-element" "--task dyck" "--task dyck --one-element"; do
    python benchmarks/learning.py --seeds 10 $options
done
one='push_control="expected_value", pop_control="expected_value", max_push=1, max_pop=1, read_control=1.0'
for seed in 0 1 2 3 4 5 6 7 8 9; do
    sed "s/manual_seed(1)/manual_seed($seed)/" examples/reversal.py | python -    # the defaults; then at most one element
    sed "s/manual_seed(1)/manual_seed($seed)/; s/num_heads=4/num_heads=4, $one/" examples/reversal.py | python -
done


# --- Networks of 2026

stack-lm train task networks2026/formal
stack-lm train task networks2026/languages
stack-lm plot results runs/networks2026-formal --output docs/figures/networks2026.png \
    --rows '^(S3|reverse string|stack manipulation), (LSTM|LSTM . stack|gated delta rule . stack|transformer|transformer . stack|DeltaStack)$'


# --- FLaRe (2025)

stack-lm train task flare/small
stack-lm results runs/flare-small --matrix

stack-lm plot results docs/appendix/trials/flare-small --output docs/figures/flare.png

stack-lm train task flare/small model.num_hidden_layers=1 model.hidden_size=123 model.hidden_dropout=0 output_dir=runs/flare-control \
    --rows '(even pairs|repeat 01|modular arithmetic simple|dyck 2 3|stack manipulation|, marked reversal|marked copy|missing duplicate string), LSTM$'


# --- Joulin and Mikolov (2015), table 2: counting

stack-lm train task joulin2015/counting --rows '^(?!a.n b.2n)' --seeds 5
stack-lm results runs/joulin2015-counting --format markdown

stack-lm train task joulin2015/counting --rows '^a.n b.n, Stack' --seeds 5 model.controller=sigmoid \
    output_dir=runs/counting-without-matrix
