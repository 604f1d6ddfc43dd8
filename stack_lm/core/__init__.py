"""What every room uses: checks, configuration files, plug-ins, messages, the console, atomic writes."""
