"""How a stack becomes a verdict. Start at `judge.diagnose`: it reads top to bottom, one line a noun.

The words
    frame       one call; every frame is kept or dropped, and a dropped one names the rule
    signature   the kept frames of one thread, written down so that equal call sites read equal on every machine
    call site   a signature understood: operation, parallel dimension, caller
    rank state  what one rank does: its call site, its kernel state, what it waits for
    cluster     ranks whose states are alike
    group wait  ranks at one call site of one process group, and the members that are elsewhere
    root        a rank that waits for no other while others wait
    hypothesis  one explanation of the waits, with odds
    suspect     what a hypothesis blames; the verdict lists them, most probable first

The path of one stack
    observe/       Frame            -> CanonicalFrame, Signature   canonicalise: what names the call site, what is noise
                   Signature        -> CallSite                    call_site: by the rules in rules/frames/
                   ProcessTrace     -> RankState                   activity: with the kernel state or the failed capture
                   rounds           -> Motion                      motion: what has not moved since the last progress
    waits/         counters, RAS    -> exact waits                 collective_counters, ras_waits, transfers
                   RankStates       -> Waits                       waits: group waits, roots
    clustering/    RankStates       -> Clusters                    exact classes, then near ones; relations of labels
    hypotheses/    Scene            -> Hypotheses                  explanations.EXPLANATIONS, one function each:
                                                                   roots          a rank outside of all collectives
                                                                   mismatch       sides that wait for each other
                                                                   stuck_groups   groups that joined and do not complete
                                                                   disagreement   collectives that do not match
                                                                   missing_dumps  ranks whose dump is lost
                                                                   structure      relations, where no other evidence is
                                                                   contradiction  stacks and counters of two moments
    findings/      Hypotheses       -> Hypotheses                  logs and hardware events move their odds
    stragglers/    rounds           -> Slowness                    a job that moves, but waits for the same ones
    verdict/       Hypotheses       -> Verdict                     weighed; eviction is the smallest set that is enough

The largest cluster is never taken for healthy: in most incidents its ranks are victims. What counts is the rank that
the others wait for, directly or through others, while it waits for none.

Every number that moves odds stands in `rules/likelihoods@2026-11.toml`, with its effect and its source. The modules read
it by its name: `SAME_PLACE` is the row `same_place`.

To teach hangdog a framework, add a rule file to `rules/frames/`. State the framework and the versions that the rules
were read off. Add a row for each rule to `tests/diagnosis/observe/test_activity.py`. Every verdict names the rule files
that judged it.
"""
