# Thin: each target is one script, and does its own set-up. What they do is in scripts/.
.PHONY: help build run test soak bench clean

help:
	@echo 'make run     installs what is needed, builds, starts brig and sends it the two-command request'
	@echo '             (ONCE=1: stop after the answer; MODEL=provider/name: ask a real model)'
	@echo 'make test    the same set-up, then every test; ends with one line of counts'
	@echo 'make soak    the long forms: everything at once for a third of an hour (HOURS=24: for longer)'
	@echo 'make bench   measures, beside baselines'
	@echo 'make build   only builds: build/brig'
	@echo 'make clean   removes what was built here (the data folder stays)'

build:
	@scripts/setup build
	@scripts/build

run:
	@ONCE='$(ONCE)' MODEL='$(MODEL)' scripts/run

test:
	@scripts/setup test
	@scripts/run-tests

soak:
	@scripts/setup test
	@HOURS='$(HOURS)' scripts/soak

bench:
	@scripts/setup bench
	@scripts/bench

clean:
	rm -rf build build-*
