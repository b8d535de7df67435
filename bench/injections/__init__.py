"""Seven faults inside collectives, as Mycroft (SOSP 2025) injects them, in a job that is played chunk by chunk."""
