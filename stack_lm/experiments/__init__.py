"""The papers' experiments: models trained on formal tasks, over seeds, and their tables.

config.py    a trial's configuration: a model, a task and how to train; tables of such rows
encoding.py  examples of a task as tensors for a kind of model
scores.py    a model's answers, and their scores on a split, by length too
trial.py     one model and the data of its seed
learning.py  the training of one trial, or of several at once
workers.py   trials in worker processes
unfinished.py  the state from which a trial that was cut off goes on
progress.py  how a run stands, on standard error
results.py   what finished trials left in a directory
computation.py  what a trained model does on one string
schedule.py  which trials are run where
shards.py    parts of a table's trials, and their results in one
comparison.py  two runs side by side
matrix.py    a table as a matrix of tasks and networks
run.py       all trials of a table, continued where they were left
"""
