"""The parts of opening a bundle: where its files come from, whose they are, what they hold, and how they fit together."""
