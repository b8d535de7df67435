"""What can go wrong, what the user can do about it, and the exit status that says so.

HangdogError
├── WrongUse            64  the command or its input requests something impossible
├── UnreadableBundle    65  a bundle holds no evidence we can read
├── UnreadableEvidence  65  one file is not what it claims to be; the rest of the bundle is still used
├── ServerUnreachable   69  no server answers at the address given
├── OurFault            70  a bug of hangdog's own
└── NotAllowed          77  no valid token or certificate, or one that does not permit the request
"""


class HangdogError(Exception):
    """Base of all errors that reach a user: `str(error)` says what happened, `hint` what to do.

    `code` names the kind of mistake for programs and stays the same when the words change (docs/errors.md lists them).
    """

    exit_code = 70

    def __init__(self, what: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(what)
        self.hint = hint
        self.code = code


class WrongUse(HangdogError):
    exit_code = 64


class UnreadableBundle(HangdogError):
    exit_code = 65


class UnreadableEvidence(HangdogError):
    """Raised by readers. The opener of the bundle turns it into an entry of the report and reads on."""

    exit_code = 65


class ServerUnreachable(HangdogError):
    exit_code = 69


class OurFault(HangdogError):
    exit_code = 70


class NotAllowed(HangdogError):
    """The request had no valid token or certificate, or one that does not permit it."""

    exit_code = 77
