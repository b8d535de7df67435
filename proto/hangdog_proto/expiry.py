"""When a certificate ends so soon that somebody should see to it."""

#: Seconds before the end that people are warned: two weeks, in which somebody is there to renew it by hand.
SOON_S = 14 * 86400.0
#: The share of its life before the end, where that is less: one of a week is renewed at half of its life by itself, so a
#: quarter that is left says that it was not.
SHARE = 0.25


def ends_soon(begins: float, ends: float, now: float) -> bool:
    """Whether a certificate that lasts from `begins` to `ends` has little left, or nothing. All are Unix seconds."""
    return ends - now < min(SOON_S, SHARE * (ends - begins))
