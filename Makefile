# A thin front: everything is in tools/dev.py.
PYTHON ?= python3
DEV = $(PYTHON) tools/dev.py
MAKEFLAGS += --no-print-directory
.PHONY: help demo test test-all lint format docs screenshots conformance bench-quick bench-before bench-operations kill-loops race scale

help:
	@$(DEV) --help

demo:
	@$(DEV) demo $(if $(filter-out 0,$(ONCE)),--once) $(if $(filter-out 0,$(TROUBLE)),--trouble) $(if $(PHOTOS),--photos "$(PHOTOS)")

bench-quick:
	@$(DEV) bench-quick $(if $(filter-out 0,$(WRITE)),--write)

bench-before:
	@$(DEV) bench-before $(if $(COMMIT),--commit $(COMMIT))

race:
	@$(DEV) race $(if $(filter-out 0,$(QUICK)),--quick)

kill-loops:
	@$(DEV) kill-loops $(if $(MINUTES),--minutes $(MINUTES))

scale:
	@$(DEV) scale $(if $(filter-out 0,$(WRITE)),--write)

test test-all lint format docs screenshots conformance bench-operations:
	@$(DEV) $@
