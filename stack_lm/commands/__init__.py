"""The subcommands of `stack-lm`, one file each: `add` declares its options, `run_*` runs it."""
