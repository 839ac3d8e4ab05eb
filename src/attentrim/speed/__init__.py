"""How fast a model is, block by block, and which blocks to narrow for a speed that is asked for."""
