"""Windows of each kind, for tests of what each backend spends of them."""

from djqueue.flow.windows import Window

WINDOWS = [
    Window(5, 0.05),
    Window(1, 0.02, margin=0.02),
    Window(3, 0.06, True),
    Window(4, 0.04, True, True),
    Window(6, 0.06, True, True, 2),
    Window(2000, 0.05),
]
