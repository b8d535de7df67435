"""What opens incidents by itself, beside a standstill."""
