"""Work that keeps a host busy, in Python and in C."""

import time


def tokenised(seed):
    return edit_distance(str(hash(seed)) * 4, str(hash(-seed)) * 4)


def compute(seconds):
    import numpy

    until, matrix = time.monotonic() + seconds, numpy.ones((64, 64))
    while time.monotonic() < until:
        matrix = matrix @ matrix / 64
    return float(matrix[0, 0])


def edit_distance(one, other):
    row = list(range(len(other) + 1))
    for at, left in enumerate(one):
        above, row[0] = row[0], at + 1
        for column, right in enumerate(other):
            above, row[column + 1] = row[column + 1], min(above + (left != right), row[column] + 1, row[column + 1] + 1)
    return row[-1]
