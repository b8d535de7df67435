"""PostgreSQL by one setting: what the URL may be, what is said when it does not open, and that its secret is never said."""

import logging
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.errors import HangdogError, ServerUnreachable, WrongUse
from hangdog_server.store.store import Store
from support.real.postgres import SECRET, USER, Postgres

#: The secret as it stands in a URL, and its parts.
SECRETS = (SECRET, quote(SECRET, safe=""), "s3cret")


def refused(where: str, caplog: pytest.LogCaptureFixture) -> HangdogError:
    """The refusal, in which, as in the log and the trace of its causes, the secret does not stand."""
    with caplog.at_level(logging.DEBUG), pytest.raises(HangdogError) as caught:
        Store(where)
    said = [str(caught.value), caught.value.hint, caplog.text, *traceback.format_exception(caught.value)]
    assert not [text for text in said for secret in SECRETS if secret in text]
    return caught.value


def test_a_database_is_called_by_its_name_without_the_secret(server: Postgres) -> None:
    store = Store(server.database())
    assert store.name.startswith(f"postgresql://{USER}@/") and "s3cret" not in store.name
    store.close()


def test_every_refusal_says_what_to_do_and_no_secret(server: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    good = server.database()
    wrong = refused(server.url("store1", "s3cret-wrong"), caplog)
    assert isinstance(wrong, ServerUnreachable) and "password authentication failed" in str(wrong)
    assert "does not exist" in str(refused(server.url("nowhere"), caplog))
    gone = refused(good.replace("?host=/", "?host=/nonexistent/"), caplog)
    assert isinstance(gone, ServerUnreachable) and "No such file" in str(gone)
    assert refused(f"postgresql://{USER}:s3cret@localhost", caplog).code == "wrong-store-address"
    assert isinstance(unread := refused("postgresql://u:s3cret@h:s3cret/db", caplog), WrongUse)
    assert unread.code == "wrong-store-address" and "%XX" in unread.hint
    other = refused("mysql://u:s3cret@h/db", caplog)
    assert other.code == "wrong-store-address" and "mysql" in str(other)


def test_a_database_that_cannot_hold_every_name_is_refused(server: Postgres) -> None:
    url = server.database(ENCODING="'LATIN1'", LOCALE="'C'", TEMPLATE="template0", LOCALE_PROVIDER="libc")
    with pytest.raises(WrongUse, match="LATIN1") as caught:
        Store(url)
    assert caught.value.code == "unsuitable-database"


def test_older_spellings_of_the_scheme_are_taken(server: Postgres) -> None:
    for scheme in ("postgres://", "postgresql+psycopg://"):
        Store(server.database().replace("postgresql://", scheme)).close()


def test_the_command_takes_it_from_the_environment_and_keeps_the_secret(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGDOG_STORE", server.url("nowhere"))
    result = CliRunner().invoke(main, ["server", "--listen", "127.0.0.1:0"])
    assert result.exit_code == 69 and "store postgresql://hangdog@/" in result.stderr
    assert not [secret for secret in SECRETS if secret in result.output]
