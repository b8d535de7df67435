"""Who asks, and whether they may: certificates, tokens, users of this machine, permissions and the audit log."""
