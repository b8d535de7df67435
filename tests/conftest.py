"""What holds for all tests."""

from hypothesis import settings

# Speed is measured in bench/, never by a test: on a busy machine every deadline is met by chance.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
