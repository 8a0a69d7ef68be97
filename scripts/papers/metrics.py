"""Metrics of the papers."""


def ratio(total, alone):
    """Aggregation ratio, equation 3.1 of the WhiteHaul dissertation."""
    return total / sum(alone)


def benefit(total, alone):
    """Aggregation benefit, equation 3.2: 0 is the best link alone, 1 the sum, -1 no goodput."""
    best = max(alone)
    if total >= best:
        return (total - best) / (sum(alone) - best)
    return (total - best) / best


def jain(shares):
    """Jain's index: 1 for equal shares, 1/n if one gets everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def deviation(values):
    """Standard deviation of a sample; 0 for a single value."""
    values = list(values)
    middle = mean(values)
    return (sum((value - middle) ** 2 for value in values) / max(1, len(values) - 1)) ** 0.5


def mean(values):
    values = list(values)
    return sum(values) / len(values)
