"""The border between messages and nouns: packs and unpacks, suspiciously."""
