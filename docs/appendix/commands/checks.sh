# Number prediction, released checkpoints, and the speed of scoring
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- Number prediction (table 2)

for v in u1 d1 free lstm; do for seed in 0 1; do
  stack-lm train classifier merrill2019/numpred_$v data.train=numpred/numpred.train data.validation=numpred/numpred.val \
      'data.test=[numpred.test.1, numpred.test.2, numpred/numpred.test]' seed=$seed output_dir=runs/numpred-$v-$seed
done; done
stack-lm agreement runs/numpred-u1-0 --data numpred.test.1 numpred.test.2 --format linzen-numpred    # and so on

stack-lm agreement free-0.tsv free-1.tsv --against lstm-0.tsv lstm-1.tsv --data numpred.test.1 numpred.test.2 \
    --format linzen-numpred    # tables of --items


# --- The released checkpoint

python recipes/convert_merrill2019.py stack-brown.th vocabulary-brown models/brown-d1 --fixed push
pytest tests/recipes/test_convert_merrill2019.py -k released

python recipes/convert_suzgun2019.py stack_rnn_model_weights.pth models/dyck2 --check 1000


# --- Speed of agreement

OMP_NUM_THREADS=1 python benchmarks/agreement.py --data linzen_sentences --format linzen-gulordava
OMP_NUM_THREADS=1 python benchmarks/agreement.py --data linzen_sentences --format linzen-gulordava --memory none


# --- Speed of scoring

python -m zipfile -e $NLTK_DATA/corpora/treebank.zip .
for i in 1 2 3 4 5 6 7 8 9 10; do cat treebank/combined/*.mrg; done > gold10.mrg
python -c "
from stack_lm.parsing import read_treebank, right_branching
for tree in read_treebank('nltk:treebank'): print(right_branching(tree.words).brackets())" > right.mrg
for i in 1 2 3 4 5 6 7 8 9 10; do cat right.mrg; done > right10.mrg
time stack-lm parse-f1 right10.mrg --data gold10.mrg --convention prpn


# --- Ordinary text and treebanks: sentences of GUM with the same tokens in both forms

head -200000 wiki.txt > first.txt
python - <<END
from stack_lm.text import open_corpus
from stack_lm.text.tokenization import train_subword_tokenizer, word_splitter

tokenizer = train_subword_tokenizer(open_corpus("first.txt"), 16000, detokenize=True)
lines = open("en_gum-ud-dev.conllu", encoding="utf-8")
texts = [line.removeprefix("# text = ").rstrip("\n") for line in lines if line.startswith("# text = ")]
forms = [" ".join(word for word, _ in word_splitter().pre_tokenize_str(text)) for text in texts]
print(sum(tokenizer(a).input_ids == tokenizer(b).input_ids for a, b in zip(texts, forms)), len(texts))
END
