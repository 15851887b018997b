"""What an op is, which ops there are, and their type rules: the vocabulary of the compile side and the run side."""
