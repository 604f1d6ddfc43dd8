"""The foundation of all rooms: checks, configuration files, plug-ins, messages, the console, atomic writes."""
