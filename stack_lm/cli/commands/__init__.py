"""The subcommands of `stack-lm`, one file each: `EXAMPLE` for the help, `add_options`, and `run`.

`stack_lm.cli.main` lists their names and summaries.
"""
