#!/usr/bin/env bash
# Builds the driver twice from go-brrr's own source, which is fetched and never kept here:
# build/before, and build/after with 416 bytes of code that nobody runs in front of the hot file.
# build/before-align16 is the first with functions at multiples of 16. Does nothing when all are
# up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

module=github.com/molecule-man/go-brrr
version=v1.0.1

if ! command -v go >/dev/null; then
    echo "go-untouched-code: go not found; SKIPPED (install Go 1.25 or later to build this case)" >&2
    exit 0
fi

fingerprint() {
    cat build.sh driver/main.go | sha256sum
    go version
}

# Functions of less than 32 bytes take 32 bytes each, so 13 more of them move what follows by 416.
write_pads() {
    local count=$1 i
    echo "package encoder"
    for ((i = 0; i < count; i++)); do
        printf '\n//go:noinline\nfunc layoutPad%d(x int) int { return x + %d }\n' "$i" "$((i + 1))"
    done
    printf '\n// LayoutPads is code that is never run.\nvar LayoutPads = []func(int) int{'
    for ((i = 0; i < count; i++)); do
        printf 'layoutPad%d, ' "$i"
    done
    echo "}"
}

build_one() {
    local product=$1 pads=$2 flags=${3:-}
    write_pads "$pads" >"$tree/internal/encoder/hash2_pads.go"
    (cd "$tree" && GOFLAGS=-mod=mod CGO_ENABLED=0 GOAMD64=v1 \
        go build -trimpath -ldflags="$flags" -o "$PWD/product" ./cmd/layoutbench)
    mv "$tree/product" "build/$product"
}

want=$(fingerprint)
if [[ -f build/stamp && "$(cat build/stamp)" == "$want" ]]; then
    exit 0
fi
mkdir -p build
tree=$PWD/build/tree
chmod -R u+w "$tree" 2>/dev/null || true
rm -rf "$tree" build/fetch
mkdir -p build/fetch
printf 'module fetch\n\ngo 1.22\n' >build/fetch/go.mod
if ! (cd build/fetch && go mod download "$module@$version"); then
    echo "go-untouched-code: $module cannot be fetched (see above); SKIPPED" >&2
    rm -rf build/fetch
    exit 0
fi
source=$(cd build/fetch && go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",/\1/p')
cp -r "$source" "$tree"
chmod -R u+w "$tree"
mkdir -p "$tree/cmd/layoutbench"
cp driver/main.go "$tree/cmd/layoutbench/"
cp "$source/testdata/github_events_5k.json" build/input.json
chmod u+w build/input.json
echo "building go-untouched-code/build/before, after and before-align16"
build_one before 1
build_one after 14
build_one before-align16 1 -funcalign=16
rm -rf "$tree" build/fetch
printf '%s\n' "$want" >build/stamp.new
mv build/stamp.new build/stamp
