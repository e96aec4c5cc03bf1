#!/usr/bin/env bash
# Builds the driver twice, with clang++-16 and with clang++-19, from the same source with the same
# flags: build/decoder-clang-16 and build/decoder-clang-19. Does nothing when both are up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Upstream's release flags, and branches kept off 32-byte boundaries so that the two builds differ
# by their loads and not by where their branches happen to lie. That flag is for x86-64 only.
cxxflags="-O3 -g"
if [[ "$(uname -m)" == x86_64 ]]; then
    cxxflags+=" -mbranches-within-32B-boundaries"
fi

# Everything that decides what the binary is: sources, lock file, flags, both compilers.
fingerprint() {
    {
        cat build.sh driver/Cargo.toml driver/Cargo.lock driver/src/*.rs
        printf '%s\n' "$cxxflags"
        "clang++-$1" --version
        rustc --version --verbose
    } | sha256sum
}

build_one() {
    local version=$1
    local product=build/decoder-clang-$version stamp=build/decoder-clang-$version.stamp
    local want
    want=$(fingerprint "$version")
    if [[ -x $product && -f $stamp && "$(cat "$stamp")" == "$want" ]]; then
        return
    fi
    echo "building $product"
    # The more specific variables would win over CXX and CXXFLAGS, so they must not be set.
    env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u CARGO_BUILD_TARGET \
        -u HOST_CXX -u TARGET_CXX -u HOST_CXXFLAGS -u TARGET_CXXFLAGS \
        -u "CXX_$(uname -m)_unknown_linux_gnu" -u "CXXFLAGS_$(uname -m)_unknown_linux_gnu" \
        CXX="clang++-$version" CXXFLAGS="$cxxflags" \
        cargo build --quiet --release --locked --manifest-path driver/Cargo.toml \
        --target-dir "build/target-clang-$version"
    # A copy that is interrupted must not pass for a build.
    cp "build/target-clang-$version/release/decoder" "$product.new"
    mv "$product.new" "$product"
    printf '%s\n' "$want" >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

# The decoder alone for AArch64, not linked: build/decoder-aarch64-clang-15.o, -16.o, -19.o. Only
# clang 16 merges the two loads there too.
build_aarch64() {
    local version=$1
    local product=build/decoder-aarch64-clang-$version.o
    local source
    source=$(cargo metadata --format-version 1 --locked --manifest-path driver/Cargo.toml |
        grep -o '"manifest_path":"[^"]*/meshopt-[^"]*/Cargo.toml"' | cut -d'"' -f4)
    source=$(dirname "$source")/vendor/src/indexcodec.cpp
    if [[ -f $product && $product -nt $source && $product -nt build.sh ]]; then
        return
    fi
    echo "building $product"
    "clang++-$version" --target=aarch64-linux-gnu -O3 -g -DNDEBUG -c "$source" -o "$product.new"
    mv "$product.new" "$product"
}

missing=()
for version in 16 19; do
    command -v "clang++-$version" >/dev/null || missing+=("clang++-$version")
done
if ((${#missing[@]})); then
    echo "upstream-index-decoder: ${missing[*]} not found." >&2
    echo "This case compares compilers and needs both: run scripts/setup, which says how to install them." >&2
    exit 1
fi
mkdir -p build
for version in 16 19; do
    build_one "$version"
done
if command -v aarch64-linux-gnu-g++ >/dev/null && command -v clang++-15 >/dev/null; then
    for version in 15 16 19; do
        build_aarch64 "$version"
    done
else
    echo "SKIPPED: AArch64 objects: aarch64-linux-gnu-g++ or clang++-15 not found (scripts/setup-test installs them)" >&2
fi
