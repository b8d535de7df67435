"""Every command line that asks a server, with what no server knows; and of the others, one that cannot be done."""

#: Where nobody listens.
NOBODY = "127.0.0.1:1"
#: Every command that asks a server, with an incident, a job, a campaign and a machine that no server knows.
COMMANDS = {
    "why": ["why", "gpu-zz"],
    "jobs": ["jobs"],
    "communicators": ["communicators", "gone"],
    "watch": ["watch"],
    "watch one": ["watch", "ff"],
    "ranks": ["ranks", "ff"],
    "stacks": ["stacks", "ff", "0"],
    "diff": ["diff", "ff", "0", "1"],
    "tree": ["tree", "ff"],
    "incidents": ["incidents", "--job", "gone"],
    "show": ["show", "ff"],
    "bundle": ["bundle", "ff", "-o", "never-written"],
    "machines": ["machines"],
    "machine": ["machines", "gpu-zz"],
    "ledger": ["ledger", "gpu-zz"],
    "report": ["report"],
    "actions": ["actions"],
    "actions of one": ["actions", "ff"],
    "close the breaker": ["actions", "--close-breaker"],
    "approve": ["approve", "ff"],
    "dismiss": ["dismiss", "ff", "--because", "seen by eye"],
    "release": ["release", "gpu-zz"],
    "ack": ["ack", "ff"],
    "note": ["note", "ff", "seen by eye"],
    "resolve": ["resolve", "ff", "software", "--because", "seen by eye"],
    "reopen": ["reopen", "ff", "--because", "it hangs again"],
    "snapshot": ["snapshot", "--job", "gone"],
    "test run": ["test", "run", "--machines", "gpu-zz"],
    "test run about one": ["test", "run", "--incident", "ff"],
    "test run to see": ["test", "run", "--machines", "gpu-zz", "--dry-run"],
    "test follow": ["test", "follow", "ff"],
    "test abort": ["test", "abort", "ff"],
    "test list": ["test", "list"],
}
#: Those that name nothing, or answer that there is nothing: with what.
NAMELESS = {
    "jobs": "no job is known", "incidents": "no incidents of job gone", "machines": "no machine is connected",
    "machine": "no campaign tested gpu-zz", "ledger": "no verdict named gpu-zz", "report": "figure", "actions": "mode approve",
    "test list": "no campaign yet",
}  # fmt: skip
#: Those for which the role `view` is not enough.
DEEDS = (
    "close the breaker", "approve", "dismiss", "release", "ack", "note", "resolve", "reopen", "snapshot", "test run", "test run about one", "test abort",
)  # fmt: skip
#: Those that ask no server, by what they are called, each with something that cannot be done, and the exit status.
ALONE = {
    "triage": ("triage nowhere", 64),
    "capture": ("capture --over ssh", 64),
    "health": (f"health --server {NOBODY}", 69),
    "server": ("server --listen 0.0.0.0:0 --store here.db", 64),
    "agent": ("agent --set patiense_s=9", 64),
    "notify": ("notify --notify nowhere.toml", 64),
    "audit": ("audit --file .", 64),
    "token new": ("token new --name alice --role act --tokens broken", 64),
    "token list": ("token list --tokens broken", 64),
    "token revoke": ("token revoke alice --tokens nowhere.json", 64),
    "certs init": ("certs init ca", 64),
    "certs server": ("certs server --name hangdog.example --ca nowhere", 64),
    "certs machine": ("certs machine gpu-a17 --ca nowhere", 64),
    "certs issuer": ("certs issuer ca", 64),
    "certs deny": ("certs deny nothing --file denied.json", 64),
    "certs denied": ("certs denied --file broken", 64),
    "certs client": ("certs client alice --ca nowhere", 64),
    "certs show": ("certs show nowhere", 64),
    "test local": ("test local --level 3", 64),
    "doctor": ("doctor", 1),
    "plan standby": ("plan standby --machines 1024 --p 38", 64),
    "plan backups": ("plan backups --topology nowhere.toml", 64),
    "run": ("run --machine gpu-a17 --spare gpu-a17 -- true", 64),
    "demo": ("demo --keep ca", 64),
    "schema": ("schema verdicts", 64),
    "completion": ("completion csh", 64),
}
