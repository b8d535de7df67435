"""How a stack becomes a verdict. Start at `judge.diagnose`: it reads top to bottom, one line a noun.

The words
    frame       one call; every frame is kept or dropped, and a dropped one says by which rule
    signature   the kept frames of one thread, written down so that equal places read equal on every machine
    place       a signature understood: operation, parallel dimension, caller
    standing    where one rank is: its place, its kernel state, whom it waits for
    cluster     ranks whose standings are alike
    hold        ranks at one place of one process group, and the members that are elsewhere
    root        a rank that waits for nobody while others wait
    hypothesis  one explanation of the waits, with odds
    suspect     what a hypothesis blames; the verdict lists them, most probable first

The way of one stack
    canonicalise   Frame            -> CanonicalFrame, Signature   (what tells the place, and what is noise)
    place          Signature        -> Place                       (rules: rules/<name>@<year-month>.toml)
    activity       ProcessTrace     -> Standing                    (the kernel and failed captures have their say)
    motion         looks            -> Motion                      (what stood still since the last progress)
    counters, ras  what libraries count -> Holds, Standings        (exact waits; whose device is behind; who is silent)
    waits          Standings        -> Waits                       (holds, roots, crowds)
    clustering/    Standings        -> Clusters                    (exact classes, then near ones)
    suspects       Waits            -> Hypotheses                  roots      a rank outside of all collectives
                                                                   one_look   who is held, where one look is all
                                                                   mismatch   sides that wait for each other
                                                                   disagreement  collectives that do not match
                                                                   stuck      groups that joined and do not complete
                                                                   structure  relations, where nothing else tells
                                                                   reports    logs and hardware (hardware weighs it)
    slow           looks            -> Slowness                    (a job that moves, but waits for the same ones)
    straggler      what libraries time -> Slowness                 (the same, by who joins last: joining, launching)
    conclude       Hypotheses       -> Verdict                     (weighed; eviction is the smallest set that suffices;
                                                                    written down with what it rests on)

The largest cluster is never taken for healthy: in most incidents it is a crowd of victims. What counts is whom the others
wait for, directly or through others, and who himself waits for nobody.

To teach hangdog a framework, add a rule file to `rules/frames/`: state the framework and the versions it was read off, and add a
row to `tests/diagnosis/observe/test_activity.py`. A released file is superseded, not edited; every verdict names its rule set.
"""
