"""The papers' experiments: models trained on formal tasks, over seeds, and their tables.

config.py    a trial's configuration: a model, a task and how to train; tables of such rows
encoding.py  examples of a task as tensors for a kind of model
scores.py    a model's answers, and their scores on a split, by length too
trial.py     one model and the data of its seed
learning.py  the training of one trial, or of several at once
workers.py   trials in worker processes
unfinished.py  the state from which an interrupted trial resumes
progress.py  the progress of a run, on standard error
results.py   the results of finished trials in directories, merged if there are several
computation.py  the computation of a trained model on one string
matrix.py    a table as a matrix of tasks and networks
run.py       all trials of a table, resumed after interruptions
"""
