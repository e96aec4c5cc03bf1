#!/usr/bin/env bash
# Builds meshoptimizer's codec with clang 19 and with gcc 12, and ours, each as 16 shared
# libraries that differ only in where their code lies, and the program that times them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

layouts=16
cxxflags=(-O3 -DNDEBUG -fPIC)
builders=(clang++-19 g++-12)
for builder in "${builders[@]}"; do
    command -v "$builder" >/dev/null || { echo "bench-index-codec: $builder not found" >&2; exit 1; }
done

cargo build --quiet --release --locked --workspace
manifest=$(cargo metadata --format-version 1 --locked |
    grep -o '"manifest_path":"[^"]*/meshopt-0[^"]*/Cargo.toml"' | head -n 1 | cut -d '"' -f 4)
source=$(dirname "$manifest")/vendor/src
mkdir -p build

# Code is shifted by 16 bytes per layout, the alignment of a function, and by an odd number of
# cache lines, so that they differ modulo 32, 64 and 256 bytes and in their cache sets.
for ((layout = 0; layout < layouts; layout++)); do
    printf '.text\n.p2align 4\n.zero %d\n.section .note.GNU-stack,"",@progbits\n' \
        $((16 + layout * (16 + 3 * 64))) >"build/pad-$layout.s"
    gcc-12 -c "build/pad-$layout.s" -o "build/pad-$layout.o"
done

for builder in "${builders[@]}"; do
    "$builder" "${cxxflags[@]}" -c "$source/indexcodec.cpp" -o "build/$builder.o"
    for ((layout = 0; layout < layouts; layout++)); do
        "$builder" -shared "build/pad-$layout.o" "build/$builder.o" -o "build/$builder-$layout.so"
    done
done

symbols=$(nm --defined-only target/release/libindex_codec_shim.a 2>/dev/null |
    grep -o ' T ours_.*' | cut -c 4- | sort -u)
for ((layout = 0; layout < layouts; layout++)); do
    gcc-12 -shared "build/pad-$layout.o" $(printf -- '-Wl,-u,%s ' $symbols) \
        target/release/libindex_codec_shim.a -Wl,--gc-sections -o "build/ours-$layout.so"
done
printf '%s\n' $symbols >build/ours.symbols
