"""Stack, queue and deque with given actions, all steps of a block at once: in torch, or on a GPU in Triton's tiles."""
