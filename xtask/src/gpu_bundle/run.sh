#!/usr/bin/env bash
# Builds ggml's CUDA backend for this machine's GPU, lets the programs of this bundle load it, and runs their tests and
# benchmarks. Needs nvcc, cmake, ninja or make; neither Rust nor the network. Writes out/report.json and logs beside it.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: run.sh [--cpu] [--build-only | --no-build] [--device NAME] [--jobs N] [--limit SECONDS] [--out FOLDER]
  --cpu         test the CPU: shows that the bundle works where there is no GPU
  --build-only  build the CUDA backend and stop
  --no-build    use the CUDA backend that was built before
  --device      the device to test [default: CUDA0]
  --jobs        how many files to compile at once [default: all cores]
  --limit       seconds for each test [default: 120]; benchmarks get five times as many
  --out         where results go [default: out beside this script]
TEXT
}

fail() { printf 'run.sh: %s\n' "$*" >&2; exit 1; }
say() { printf 'run.sh: %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
json() { printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"; }
# The lines of standard input as a list of strings.
json_lines() {
    local first=1 line
    printf '['
    while IFS= read -r line; do
        [ "$first" = 1 ] || printf ', '
        first=0
        json "$line"
    done
    printf ']'
}

# CUDA from Python's packages lacks the names that libraries are found by, and some have no stub of the driver's: then a
# folder of links that has them is used instead. Sets what cmake is to be told.
complete_toolkit() {
    local lib=$cuda/lib64 file name
    toolkit=()
    [ -d "$lib" ] || lib=$cuda/lib
    if [ -e "$lib/libcudart.so" ] && [ -e "$lib/stubs/libcuda.so" ]; then return; fi
    if [ ! -d "$lib" ] || ! ls "$lib"/libcudart.so* >/dev/null 2>&1; then return; fi # cmake knows where else to look
    say "completing $cuda by links in $here/toolkit"
    rm -rf "$here/toolkit"
    mkdir -p "$here/toolkit/lib/stubs"
    for file in "$cuda"/*; do
        name=${file##*/}
        case $name in lib | lib64) ;; *) ln -s "$file" "$here/toolkit/$name" ;; esac
    done
    for file in "$lib"/*; do
        name=${file##*/}
        [ "$name" = stubs ] || ln -s "$file" "$here/toolkit/lib/$name"
        case $name in *.so.*) [ -e "$lib/${name%%.so.*}.so" ] || ln -sf "$file" "$here/toolkit/lib/${name%%.so.*}.so" ;; esac
    done
    ln -s lib "$here/toolkit/lib64"
    "${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$here/toolkit/lib/stubs/libcuda.so" "$here/libcuda.c"
    # nvcc goes by where it really is, and has the linker look there.
    export LIBRARY_PATH=$here/toolkit/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
    toolkit=("-DCUDAToolkit_ROOT=$here/toolkit" "-DCMAKE_CUDA_COMPILER=$here/toolkit/bin/nvcc")
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cpu=0 build=1 tests=1 device= limit=120 out=$here/out
jobs=$(nproc 2>/dev/null || echo 2)
while [ $# -gt 0 ]; do
    case $1 in
        --cpu) cpu=1 build=0 ;;
        --build-only) tests=0 ;;
        --no-build) build=0 ;;
        --device | --jobs | --limit | --out)
            [ $# -gt 1 ] || fail "$1 needs a value"
            printf -v "${1#--}" '%s' "$2"
            shift
            ;;
        --help | -h) usage; exit 0 ;;
        *) usage >&2; fail "what is $1?" ;;
    esac
    shift
done
mkdir -p "$out"
rm -f "$out/report.json"
backends=$here/lib/backends
gpu= driver= nvcc_version= cuda= build_seconds=0

if [ "$cpu" = 1 ]; then
    device=${device:-CPU}
else
    device=${device:-CUDA0}
    have nvidia-smi || fail "no GPU: there is no nvidia-smi here (--cpu tests the bundle without one)"
    query=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>&1) || fail "no GPU: nvidia-smi says: $query"
    [ -n "$query" ] || fail "no GPU: nvidia-smi lists none"
    query=${query%%$'\n'*}
    gpu=${query%,*} driver=${query##*, }
    say "GPU: $gpu, driver $driver"
    for folder in "${CUDA_PATH:-}" /usr/local/cuda; do
        if [ -n "$folder" ] && [ -x "$folder/bin/nvcc" ]; then PATH=$PATH:$folder/bin; fi
    done
    if have nvcc; then
        nvcc_version=$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
        cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
    fi
fi

if [ "$build" = 1 ]; then
    have nvcc || fail "there is no nvcc: set CUDA_PATH to the folder of CUDA's toolkit"
    have cmake || fail "there is no cmake"
    generator=()
    if have ninja; then generator=(-G Ninja); fi
    complete_toolkit
    mapfile -t arguments < "$here/cmake.args"
    start=$SECONDS
    say "compiling the CUDA backend with nvcc $nvcc_version, $jobs files at once: minutes"
    cmake -S "$here" -B "$here/build" "${generator[@]}" "-DGGML_SYS_SOURCE=$here/ggml" \
        "${toolkit[@]}" "${arguments[@]}" > "$out/configure.log" 2>&1 || { tail -20 "$out/configure.log" >&2; fail "cmake failed: see $out/configure.log"; }
    cmake --build "$here/build" --target ggml-cuda --parallel "$jobs" > "$out/build.log" 2>&1 &
    builder=$!
    while kill -0 "$builder" 2>/dev/null; do
        sleep 1
        if [ $(((SECONDS - start) % 15)) = 0 ]; then
            say "$((SECONDS - start)) s: $(tail -c 300 "$out/build.log" | tail -1)"
        fi
    done
    wait "$builder" || { tail -40 "$out/build.log" >&2; fail "the CUDA backend can't be compiled: see $out/build.log"; }
    build_seconds=$((SECONDS - start))
    echo "$build_seconds" > "$here/build/seconds"
    module=$(find "$here/build" -name libggml-cuda.so -type f | head -1)
    [ -n "$module" ] || fail "cmake made no libggml-cuda.so"
    cp "$module" "$backends/"
    say "compiled in $build_seconds s"
fi
[ "$tests" = 1 ] || exit 0
if [ "$cpu" = 1 ]; then
    # Shows that cmake finds all it reads; without nvcc, it can't compile.
    have cmake || fail "there is no cmake"
    mapfile -t arguments < "$here/cmake.args"
    cmake -S "$here" -B "$out/configured" "-DGGML_SYS_SOURCE=$here/ggml" "${arguments[@]}" -DGGML_CUDA=OFF \
        > "$out/configure.log" 2>&1 || { tail -20 "$out/configure.log" >&2; fail "cmake failed: see $out/configure.log"; }
else
    [ -f "$backends/libggml-cuda.so" ] || fail "there is no CUDA backend yet: run without --no-build"
    build_seconds=$(cat "$here/build/seconds" 2>/dev/null || echo 0)
fi

# What the programs were linked with comes before anything that is installed.
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [ -n "$cuda" ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$cuda/lib64:$cuda/lib; fi
export GGML_TEST_BACKENDS=$backends GGML_TEST_DEVICE=$device GGML_NO_BACKTRACE=1 RUST_BACKTRACE=0
# Lets the test of pinned memory pin some.
export GGML_CUDA_REGISTER_HOST=1
# So many random programs.
export ABUSE_PROGRAMS=${ABUSE_PROGRAMS:-2000}
passed=0 failed=0 ignored=0 list=
mkdir -p "$out/logs"
for program in "$here"/bin/test-*; do
    names=$("$program" --list --format terse 2> "$out/logs/list.log" | sed -n 's/: test$//p') || true
    [ -n "$names" ] || { cat "$out/logs/list.log" >&2; fail "$program does not run here"; }
    for name in $names; do
        log=$out/logs/${name//::/.}.log
        start=$(date +%s%N)
        # A process each: one that dies takes no other along.
        if timeout --kill-after=5 "$limit" "$program" "$name" --exact --nocapture > "$log" 2>&1; then code=0; else code=$?; fi
        ms=$((($(date +%s%N) - start) / 1000000))
        if [ "$code" = 0 ] && grep -q '^test result: ok. 1 passed' "$log"; then
            result=passed passed=$((passed + 1))
        elif [ "$code" = 0 ] && grep -q ' 1 ignored' "$log"; then
            result=ignored ignored=$((ignored + 1))
        else
            failed=$((failed + 1))
            case $code in
                101) result=failed ;;
                124 | 137) result="no end in $limit s" ;;
                *) result="died: $code" ;;
            esac
        fi
        printf '%-70s %s (%s ms)\n' "$name" "$result" "$ms"
        list="$list${list:+,}"$'\n'"    {\"name\": $(json "$name"), \"result\": $(json "$result"), \"ms\": $ms}"
    done
done
unsupported=$(cat "$out"/logs/*.log | sed -n 's/^unsupported: //p' | json_lines)
compared=$(cat "$out"/logs/*.log | sed -n 's/^compared: //p' | json_lines)

figures=
for program in "$here"/bin/bench-*; do
    log=$out/logs/$(basename "$program").log
    if timeout --kill-after=5 $((limit * 5)) "$program" > "$log" 2> "$log.err"; then code=0; else code=$?; fi
    if [ "$code" != 0 ]; then
        failed=$((failed + 1))
        say "$(basename "$program") ended with $code: see $log.err"
    fi
    while IFS= read -r line; do
        figures="$figures${figures:+,}"$'\n'"    $line"
    done < <(grep '^{.*}$' "$log" || true)
done

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
cat > "$out/report.json" <<TEXT
{
  "bundle": $(cat "$here/bundle.json"),
  "date": $(json "$(date -u +%Y-%m-%dT%H:%M:%SZ)"),
  "device": $(json "$device"),
  "gpu": $(json "$gpu"),
  "driver": $(json "$driver"),
  "nvcc": $(json "$nvcc_version"),
  "processor": $(json "$processor"),
  "cores": $(nproc),
  "build_seconds": $build_seconds,
  "passed": $passed,
  "failed": $failed,
  "ignored": $ignored,
  "compared": $compared,
  "unsupported": $unsupported,
  "tests": [$list
  ],
  "figures": [$figures
  ]
}
TEXT
say "device=$device passed=$passed failed=$failed ignored=$ignored report=$out/report.json"
[ "$failed" = 0 ]
