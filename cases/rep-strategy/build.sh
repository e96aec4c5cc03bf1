#!/usr/bin/env bash
# Builds zstd's library twice, from the source of the Debian package, which is fetched and never kept
# here: build/default.a, and build/strategy.a without inlined string instructions. Does nothing when
# both are up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# As the package's .dsc (libzstd 1.5.4+dfsg2-5) states it.
tarball=libzstd_1.5.4+dfsg2.orig.tar.xz
sha256=8cf4bbb65e77ec348d052c8d6230eba66d435bddf64c8b5be2fcb16880c19953
# A binary package that lies in the same folder of the mirror.
sibling=libzstd1
fetcher=/usr/lib/apt/apt-helper

# As a kernel is compiled: no vector registers, so that gcc reaches for string instructions.
common=(-O2 -g1 -mgeneral-regs-only -mtune=generic -DZSTD_DISABLE_ASM -DZSTD_NO_INTRINSICS
    -DZSTD_LEGACY_SUPPORT=5 -I"tree/lib")
choice=unrolled_loop:256:noalign,libcall:-1:noalign
strategy=("-mmemcpy-strategy=$choice" "-mmemset-strategy=$choice")

skip() {
    echo "rep-strategy: $*; SKIPPED" >&2
    exit 0
}

fingerprint() {
    { cat build.sh && gcc --version; } | sha256sum
}

# The folder of the mirror that apt takes the sibling from.
pool() {
    apt-get download --print-uris "$sibling" 2>/dev/null | sed -n "s,^'\(.*\)/[^/]*' .*,\1,p" | head -n 1
}

fetch() {
    local folder
    folder=$(pool)
    [[ -n $folder ]] || skip "apt knows no package $sibling (scripts/setup-test fetches its lists)"
    "$fetcher" download-file "$folder/$tarball" "build/$tarball" "SHA256:$sha256" >&2 ||
        skip "$tarball cannot be fetched (see above)"
    echo "$sha256  build/$tarball" | sha256sum --check --quiet
}

build_one() {
    local product=$1
    shift
    rm -rf "build/objects" && mkdir "build/objects"
    (cd build && printf '%s\n' tree/lib/{common,compress,decompress,legacy}/*.c |
        xargs -P "$(nproc)" -I{} sh -c \
            'source=$1; shift; gcc "$@" -c "$source" -o "objects/$(basename "$source" .c).o"' _ {} \
            "${common[@]}" "$@")
    rm -f "build/$product.new"
    ar rcsD "build/$product.new" build/objects/*.o
    mv "build/$product.new" "build/$product"
}

[[ $(uname -m) == x86_64 ]] || skip "gcc for x86-64 is needed"
command -v gcc >/dev/null || skip "gcc not found"
want=$(fingerprint)
if [[ -f build/stamp && "$(cat build/stamp)" == "$want" ]]; then
    exit 0
fi
mkdir -p build
if ! echo "$sha256  build/$tarball" | sha256sum --check --status 2>/dev/null; then
    [[ -x $fetcher ]] || skip "$fetcher not found: the source comes from a Debian mirror"
    fetch
fi
rm -rf build/tree && mkdir build/tree
tar --extract --file "build/$tarball" --directory build/tree --strip-components 1
echo "building rep-strategy/build/default.a and strategy.a"
build_one default.a
build_one strategy.a "${strategy[@]}"
rm -rf build/tree build/objects
printf '%s\n' "$want" >build/stamp.new
mv build/stamp.new build/stamp
