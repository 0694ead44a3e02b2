# A thin front: everything is in tools/dev.py.
PYTHON ?= python3
DEV = $(PYTHON) tools/dev.py
MAKEFLAGS += --no-print-directory
.PHONY: help demo test test-all lint format docs bench

help:
	@$(DEV) --help

demo:
	@$(DEV) demo $(if $(filter-out 0,$(ONCE)),--once) $(if $(PHOTOS),--photos "$(PHOTOS)")

test test-all lint format docs bench:
	@$(DEV) $@
