"""The pages people look at, drawn from verdicts and scenes; needs none of the server's packages, so that triage draws them too."""
