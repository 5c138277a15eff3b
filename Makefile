# Everything that is needed to run, test and measure RingMQ; each target sets up what it misses (see .ci/bootstrap).
SHELL := /bin/bash
BIN := .venv/bin
PACKAGES := native ipc fastjson filters remoting store timer pop ha broker services doctor namesrv client cli spark_bridge loadtest testing
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 4
SEED ?= 1
STRICT ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 19

.PHONY: run
run: ## from nothing to the pipeline: broker, 10,000 real log lines, consumer group, Spark, report
	@.ci/stage "set up" .ci/bootstrap run
	@.ci/stage "pipeline" $(BIN)/python examples/access_log_pipeline.py
	@cat .ci/next

SUITE = $(BIN)/python -m tests.suite $(if $(filter-out 0,$(STRICT)),--strict) --seed $(SEED) --workers $(PYTEST_WORKERS)
CLASSES = export JDK_JAVA_OPTIONS="$$JDK_JAVA_OPTIONS $$(.ci/spark-classes options)" \
	RINGMQ_STOCK_CLASSES="$(CURDIR)/.venv/stock.jsa" &&

# Virtual machines of tests live for seconds: the second compiler costs them more than it brings.
test: export JDK_JAVA_OPTIONS := -XX:TieredStopAtLevel=1

.PHONY: test
test: ## linters, C warnings as errors, all tests (against the installed package); STRICT=1 SEED=7 PYTEST_ARGS="-k pull"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "lint and C warnings" $(MAKE) --no-print-directory --jobs=2 --output-sync=target lint warnings
	@$(CLASSES) .ci/stage "tests" $(SUITE) -- $(PYTEST_ARGS)
	@$(if $(strip $(PYTEST_ARGS)),,.ci/stage "tests on epoll" $(SUITE) --engine epoll --part)

.PHONY: test-epoll
test-epoll: export JDK_JAVA_OPTIONS := -XX:TieredStopAtLevel=1
test-epoll: ## all tests on epoll instead of io_uring; STRICT=1 SEED=7 PYTEST_ARGS="-k pull"
	@.ci/stage "set up" .ci/bootstrap test
	@$(CLASSES) .ci/stage "tests on epoll" $(SUITE) --engine epoll -- $(PYTEST_ARGS)

# Python is no program of the sanitizers, so their library is preloaded. A test that preloads another one is left out.
SANITIZED = env ASAN_OPTIONS=detect_leaks=0:handle_segv=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
	RINGMQ_NATIVE="$$(find $(CURDIR)/build/sanitized -name '_native*.so')"
SANITIZED_TESTS = tests/pop tests/native/test_held_races.py --ignore=tests/pop/test_clock_jumps.py

.PHONY: test-sanitized
test-sanitized: ## tests of POP and of held polls, brokers too, on a core with sanitizers; PYTEST_ARGS="tests/timer"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "build" $(MAKE) --no-print-directory sanitized
	@.ci/stage "tests" $(SANITIZED) $(BIN)/python -m pytest -q $(or $(PYTEST_ARGS),$(SANITIZED_TESTS))

.PHONY: test-without-timers
test-without-timers: ## a tree without timer/: builds it, runs the tests there that do not name timers; PYTEST_ARGS="tests/ipc"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "without timers" $(BIN)/python -m tests.without_timers $(PYTEST_ARGS)

.PHONY: install-service
install-service: ## systemd units and an environment in /opt/ringmq, as root; PREFIX=, LIBDIR=, DESTDIR=, WHEEL=
	@.ci/stage "set up" .ci/bootstrap service
	@.ci/stage "install" env PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" WHEEL="$(WHEEL)" systemd/install install

.PHONY: uninstall-service
uninstall-service: ## takes that away again; stores and configuration stay
	@env PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" systemd/install uninstall

.PHONY: test-service
test-service: ## the units in a real boot of a machine of its own (systemd-nspawn, as root), with a transcript
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "service" $(BIN)/python -m pytest -s -v tests/service $(PYTEST_ARGS)

.PHONY: test-upgrade
test-upgrade: ## a store and a pair under load from the version before to this one and back; PYTEST_ARGS="--old-commit COMMIT"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "upgrade" $(BIN)/python -m pytest -v -m upgrade tests/upgrade $(PYTEST_ARGS)

.PHONY: test-proxy
test-proxy: export JDK_JAVA_OPTIONS := -XX:TieredStopAtLevel=1
test-proxy: ## the published 5.x clients through RocketMQ's proxy, before RocketMQ and RingMQ: equal counts; PYTEST_ARGS="-k java"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "proxy" $(BIN)/python -m pytest -v -m proxy tests/proxy $(PYTEST_ARGS)

.PHONY: bench
bench: ## side by side: stock RocketMQ, RingMQ and the ceiling; table, JSON and SVG
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "bench" $(BIN)/python -m ringmq.loadtest.bench $(BENCH_ARGS)

.PHONY: bench-matrix
bench-matrix: ## topics x body size x consumers x policy on a master and a slave, within an hour; MATRIX_ARGS="--topics 1,8"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "matrix" $(BIN)/python -m ringmq.loadtest.matrix $(MATRIX_ARGS)

.PHONY: bench-growth
bench-growth: ## what more topics, queues, connections, log, groups and time cost; GROWTH_ARGS="--only topics,queues"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "growth" $(BIN)/python -m ringmq.loadtest.growth $(GROWTH_ARGS)

.PHONY: locust
locust: ## locust users against a broker of its own, HTML report; LOCUST_ARGS="--users 100 -- --p99-ms-max send=50"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "locust" $(BIN)/python -m ringmq.loadtest.locust $(LOCUST_ARGS)

.PHONY: bench-spark
bench-spark: ## the Spark bridge against Parquet, the stock client and the native loader; SPARK_BENCH_ARGS="--rounds 3"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "bench" $(BIN)/python -m ringmq.loadtest.spark $(SPARK_BENCH_ARGS)

.PHONY: bench-sdk
bench-sdk: ## our Python SDK beside PyPI's rocketmq 0.4.4, one process each, one broker; SDK_BENCH_ARGS="--rounds 3"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "bench" $(BIN)/python -m ringmq.loadtest.sdk $(SDK_BENCH_ARGS)

.PHONY: bench-proxy
bench-proxy: ## our SimpleConsumer beside PyPI's rocketmq-python-client 5.1.2 and RocketMQ's proxy; PROXY_BENCH_ARGS="--rounds 3"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "bench" $(BIN)/python -m tests.proxy.receive_bench $(PROXY_BENCH_ARGS)

.PHONY: bench-versions
bench-versions: ## this checkout beside another by the rule of speed; OLD=CHECKOUT VERSIONS_ARGS="--rounds 3"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "versions" $(BIN)/python -m ringmq.loadtest.versions --old "$(OLD)" $(VERSIONS_ARGS)

.PHONY: bench-port
bench-port: ## records a second that a service republishes, and what clients keep beside it; PORT_BENCH_ARGS="--profile"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "port" $(BIN)/python -m ringmq.loadtest.port $(PORT_BENCH_ARGS)

.PHONY: bench-answers
bench-answers: ## answers that name records beside pulls, and what 10,000 held polls cost; ANSWERS_BENCH_ARGS="--rounds 3"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "answers" $(BIN)/python -m tests.polls.poll_bench $(ANSWERS_BENCH_ARGS)

.PHONY: bench-starts
bench-starts: ## imports of each process, and CPU of a start of `ringmq serve`; STARTS_ARGS="--old FOLDER --rounds 3"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "starts" $(BIN)/python -m ringmq.loadtest.starts $(STARTS_ARGS)

.PHONY: drill
drill: ## 1,000 seeded kills and stops under load, then the checker; DRILL_ARGS="--seed 7 --async"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "drill" $(BIN)/python -m ringmq.loadtest.drills.drill --seed 1 --blows 1000 $(DRILL_ARGS)

.PHONY: echo-drill
echo-drill: ## 200 seeded kills while the example service works, both flush policies; ECHO_DRILL_ARGS="--seed 7 --kills 50"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "echo drill" $(BIN)/python -m tests.services.echo_drill --seed 1 --kills 200 $(ECHO_DRILL_ARGS)

.PHONY: answers-drill
answers-drill: ## 200 seeded faults while a test worker holds 10,000 polls, then 65,536; ANSWERS_DRILL_ARGS="--seed 7 --faults 50"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "answers drill" $(BIN)/python -m tests.polls.poll_drill --seed 1 --faults 200 $(ANSWERS_DRILL_ARGS)

.PHONY: damage
damage: ## 100 damaged copies of a store: each starts and serves what its log has; DAMAGE_ARGS="--seed 7 --rounds 300"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "damage" $(BIN)/python -m ringmq.loadtest.drills.damage --seed 1 --rounds 100 $(DAMAGE_ARGS)

.PHONY: ha-drill
ha-drill: ## 100 seeded faults of a master and its slave under load, then the checker; HA_DRILL_ARGS="--seed 7 --auto"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "replication drill" $(BIN)/python -m ringmq.loadtest.drills.ha_drill --seed 1 --rounds 100 $(HA_DRILL_ARGS)

.PHONY: siege
siege: ## 47 attacks and 12 pairs of them while an honest client asks, 55 minutes; SIEGE_ARGS="--only churn,bombs"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "siege" $(BIN)/python -m ringmq.loadtest.siege $(SIEGE_ARGS)

.PHONY: fuzz
fuzz: ## 10 million inputs a target under sanitizers, 650,000 over sockets; goes on where it ended; FUZZ_ARGS="--only http"
	@.ci/stage "set up" .ci/bootstrap test
	@.ci/stage "fuzz" $(BIN)/python -m ringmq.loadtest.fuzz $(FUZZ_ARGS)

.PHONY: dist
dist: ## a manylinux wheel for Python 3.11 and later, and the source distribution, in dist/
	@.ci/stage "set up" .ci/bootstrap dist
	@.ci/stage "distributions" packaging/dist

.PHONY: deb
deb: ## a self-contained Debian package in dist/ (on Debian 12)
	@.ci/stage "set up" .ci/bootstrap deb
	@.ci/stage "package" packaging/deb

.PHONY: test-deb
test-deb: deb ## the package on an empty Debian 12 without a network (as root)
	@.ci/stage "empty machine" packaging/test-deb

.PHONY: lint
lint: ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build/mypy && ln -sfn ../.. build/mypy/ringmq && ln -sfn ../../spark_bridge/pyspark_ringmq build/mypy/
	MYPYPATH=build/mypy $(BIN)/mypy $(PACKAGES:%=-p ringmq.%) -p pyspark_ringmq
	MYPYPATH=build/mypy:examples $(BIN)/mypy examples/*.py

# The build of the core has these warnings as errors, too, and at -O3: warnings of data flow need optimisation. It takes
# GNU's C11, so what is left to look for is each file's language.
.PHONY: warnings
warnings: ## each file of the C core as C11, with warnings as errors
	@find native/src -name '*.c' -print0 | xargs -0 -n 8 -P 2 \
		gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Inative/src -fsyntax-only

.PHONY: build
build: ## rebuild the C core in place and look for new packages (editable installs)
	@mkdir -p build
	RINGMQ_REQUIRE_NATIVE=1 flock build/.lock $(BIN)/python setup.py -q build_ext --inplace
	@ls */__init__.py packaging/*/__init__.py | cmp -s - .venv/.packages || { \
		RINGMQ_REQUIRE_NATIVE=1 $(BIN)/pip install -q --no-deps --no-build-isolation -e . && \
		ls */__init__.py packaging/*/__init__.py >.venv/.packages; }

.PHONY: jar
jar: ## the JVM source of Spark, into the installed package (needs a JDK)
	@$(BIN)/python -m ringmq.spark_bridge.jar

.PHONY: crash
crash: ## the C core with named crash points, a test build, in build/crash
	@mkdir -p build
	RINGMQ_CRASH_POINTS=1 RINGMQ_REQUIRE_NATIVE=1 CC="$(BIN)/python tests/plain_cc.py" \
		flock build/.lock $(BIN)/python setup.py -q build_ext --force \
		--build-lib build/crash --build-temp build/crash/temp

.PHONY: sanitized
sanitized: ## the C core with the sanitizers of addresses and of undefined behaviour, a test build, in build/sanitized
	@mkdir -p build
	RINGMQ_REQUIRE_NATIVE=1 CC="$(BIN)/python tests/plain_cc.py --sanitized" flock build/.lock \
		$(BIN)/python setup.py -q build_ext --force --build-lib build/sanitized --build-temp build/sanitized/temp

.PHONY: dev
dev: ## editable install, for work on the code
	.ci/bootstrap service
	test -d .venv || python3 -m venv .venv
	$(BIN)/pip install -q "setuptools>=77" wheel
	rm -rf .venv/lib/python3*/site-packages/ringmq # the jar that `make test` built: pip does not know it, and it hides the checkout
	RINGMQ_REQUIRE_NATIVE=1 $(BIN)/pip install -q -e '.[broker,kernels,spark,loadtest,dev]'
	touch .venv/.editable
