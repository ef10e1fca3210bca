PYTHON ?= python3
BIN = .venv/bin
# The build of torch that uv takes, if there is uv: auto has CUDA packages only where a GPU is. cpu
# and cu128, for example, name one.
TORCH ?= auto

.PHONY: demo test test-slow lint docs clean

# The main job, small: three trainings, their grids, the comparison heatmap.
demo: .venv/demo
	$(BIN)/tape-arith run --pe rope,fire,tape --preset tiny

test: .venv/test
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist worksteal

test-slow: .venv/test
	$(BIN)/python -m pytest -q -m slow -n 2 --dist worksteal --durations=15

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/demo
	$(BIN)/python -m tape_arith.arith.reference

# Each stamp is an environment with what that target needs; `make demo` fetches no test tools.
.venv/demo: pyproject.toml constraints.txt
	$(call install,.)
.venv/test: pyproject.toml constraints.txt
	$(call install,.[test])
.venv/dev: pyproject.toml constraints.txt
	$(call install,.[dev])

# A Python without ensurepip still sets up, if it has pip itself. pip takes torch from where its
# settings say, also where uv cannot reach the build that it chose.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv 2>/dev/null \
		|| $(PYTHON) -m venv --clear --without-pip .venv
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
		else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
		echo "installing into .venv (the first time takes a minute or two)"; \
		{ command -v uv >/dev/null && uv pip install -q --python $(BIN)/python \
			--torch-backend $(TORCH) -c constraints.txt -e '$(1)'; } \
		|| $$pip install -q --disable-pip-version-check -c constraints.txt -e '$(1)'
	@touch $@
endef

clean:
	rm -rf .venv data runs
