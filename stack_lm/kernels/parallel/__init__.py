"""Stack, queue and deque with given actions, all steps of a block at once, in plain torch on any device."""
