"""Collections in which the commands of a test module write down what happened, empty again for each test."""

_noted: list = []


def cleared_per_test(collection):
    """A collection, or anything else with `clear()`, that every test finds cleared."""
    _noted.append(collection)
    return collection


def clear_all() -> None:
    for collection in _noted:
        collection.clear()
