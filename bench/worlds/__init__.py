"""How right hangdog is in worlds: sets of cases whose truth is known, made by whomever."""
