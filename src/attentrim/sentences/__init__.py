"""Models that embed sentences: what a sentence-transformers directory says, and a transformers model that does it.

sentence-transformers itself is not needed: its directories are read and written here. `listing` imports no torch.
"""
