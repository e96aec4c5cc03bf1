#!/usr/bin/env bash
# Writes small inputs to start fuzzing from into fuzz/corpus/<target>: programs that the compilers of
# this machine make, in a few kB each, and what earlier fuzzing has found (kept/). Safe to run again;
# what fuzzing has found since stays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat >"$scratch/seed.c" <<'SOURCE'
struct regs { long words[21]; };
void copy(struct regs *to, const struct regs *from) { *to = *from; }
long ring(long x, int n) {
    volatile unsigned at[32];
    for (int i = 0; i < n; i++) {
        at[2 * (i & 15)] = (unsigned)x;
        at[2 * (i & 15) + 1] = (unsigned)(x >> 32);
        x = *(volatile long *)&at[2 * (i & 15)] + 1;
    }
    return x;
}
int pick(int n) {
    switch (n) { case 0: return 3; case 1: return 7; case 2: return 1; case 3: return 9; case 4: return 2; }
    return 0;
}
SOURCE

into=corpus/scan_bytes
mkdir -p "$into"
for kept in kept/*.tar.xz; do
    tar --extract --xz --directory corpus --file "$kept"
done
compile() { # name, compiler and flags
    local name=$1
    shift
    if command -v "$1" >/dev/null; then
        "$@" -c "$scratch/seed.c" -o "$into/$name"
    fi
}
compile gcc.o gcc -O2
compile gcc-g.o gcc -O2 -g1
compile gcc-rep.o gcc -O2 -mgeneral-regs-only
compile gcc-sections.o gcc -O1 -ffunction-sections
compile aarch64.o aarch64-linux-gnu-gcc -O2
for version in 16 19; do
    compile "clang-$version.o" "clang-$version" -O2
done
# Linked, with unwind tables and a loader's tables, stripped and not.
gcc -O2 -nostdlib -shared "$scratch/seed.c" -o "$into/shared.so"
gcc -O2 -nostdlib -shared -s "$scratch/seed.c" -o "$into/stripped.so"
echo "$(find "$into" -type f | wc -l) files in fuzz/$into"

# Recordings: a short one in a file and one through a pipe, its text, and what callgrind counts.
cat >"$scratch/hot.c" <<'SOURCE'
int main(void) {
    volatile unsigned long x = 1;
    for (int i = 0; i < 3000000; i++) x = x * 5 + 1;
    return 0;
}
SOURCE
gcc -O1 -static-pie "$scratch/hot.c" -o "$scratch/hot"
recordings=corpus/perf_data
profiles=corpus/profile_data
mkdir -p "$recordings" "$profiles"
if command -v perf >/dev/null; then
    perf record -q -e cpu-clock:u -c 500000 -o "$recordings/file" "$scratch/hot" 2>/dev/null || true
    perf record -q -e cpu-clock -F 999 -o - "$scratch/hot" >"$recordings/pipe" 2>/dev/null || true
    perf record -q -z -e cpu-clock:u -c 100000 -o "$recordings/packed" "$scratch/hot" 2>/dev/null || true
    [[ -s $recordings/file ]] && perf script -i "$recordings/file" 2>/dev/null | head -20 >"$profiles/script.txt" || true
fi
cp "$recordings"/* "$profiles/" 2>/dev/null || true
if command -v valgrind >/dev/null; then
    valgrind -q --tool=callgrind --dump-instr=yes --callgrind-out-file="$scratch/counts" "$scratch/hot" 2>/dev/null || true
    head -c 3000 "$scratch/counts" >"$profiles/callgrind" 2>/dev/null || true
fi

# The tables of a Go program, if there is one.
tables=corpus/pclntab
mkdir -p "$tables"
go=../cases/go-untouched-code/build/before
if [[ -e $go ]]; then
    objcopy -O binary --only-section=.gopclntab "$go" "$scratch/pclntab"
    head -c 4096 "$scratch/pclntab" >"$tables/go"
fi
echo "$(find "$recordings" "$profiles" "$tables" -type f | wc -l) files in fuzz/$recordings, $profiles and $tables"
