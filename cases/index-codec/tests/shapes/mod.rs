//! Meshes of every shape that the codec has a code for. Nothing here needs another library, so that
//! an interpreter can run what uses it.

// Each test binary uses some of this.
#![allow(dead_code)]

/// Small and reproducible; the tests need no better.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }
}

/// Strips whose triangles each share an edge with the one before.
pub fn strips(count: u32, triangles_each: u32) -> Vec<u32> {
    let mut indices = Vec::new();
    for strip in 0..count {
        let base = strip * (triangles_each + 2);
        for i in base..base + triangles_each {
            let flip = (i - base) % 2;
            indices.extend([i + flip, i + 1 - flip, i + 2]);
        }
    }
    indices
}

/// A square grid, row by row.
pub fn grid(cells: u32) -> Vec<u32> {
    let stride = cells + 1;
    let cell = |n: u32| {
        let corner = n / cells * stride + n % cells;
        let (right, below) = (corner + 1, corner + stride);
        [corner, right, below, right, below + 1, below]
    };
    (0..cells * cells).flat_map(cell).collect()
}

/// All triangles around one vertex.
pub fn fan(triangles: u32) -> Vec<u32> {
    (0..triangles).flat_map(|i| [0, i + 1, i + 2]).collect()
}

/// Any indices at all.
pub fn random(triangles: usize, vertices: u32, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    (0..triangles * 3).map(|_| random.below(vertices)).collect()
}

/// Triangles of few vertices near each other: reaches every kind of code.
pub fn tangled(triangles: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    (0..triangles as u32).flat_map(|i| [0; 3].map(|_: u32| i / 3 + random.below(12))).collect()
}

/// Several meshes one behind the other, each starting at vertex 0.
pub fn restarting() -> Vec<u32> {
    (0..20).flat_map(|n| strips(1, 10 + n)).collect()
}

/// The shapes with their names.
pub fn all() -> Vec<(&'static str, Vec<u32>)> {
    let top = |indices: Vec<u32>| indices.into_iter().map(|i| u32::MAX - i).collect();
    vec![
        ("empty", vec![]),
        ("one triangle", vec![0, 1, 2]),
        ("one turned triangle", vec![2, 0, 1]),
        ("one far triangle", vec![1000, 2_000_000, u32::MAX - 1]),
        ("strips", strips(7, 300)),
        ("grid", grid(40)),
        ("fan", fan(700)),
        ("random", random(3000, 5000, 1)),
        ("tangled", tangled(5000, 2)),
        ("restarting", restarting()),
        ("one vertex", vec![7; 300]),
        ("vertex zero", vec![0; 300]),
        ("two vertices", (0..900).map(|i| i / 2 % 2).collect()),
        ("all different", (0..3000).collect()),
        ("downwards", (0..3000).rev().collect()),
        ("strips at the top", top(strips(7, 300))),
        ("tangled at the top", top(tangled(5000, 3))),
        ("only the top", vec![u32::MAX; 300]),
    ]
}

/// The triangles are the same, in the same order, but for the rotation of their corners.
pub fn assert_same_triangles(name: &str, ours: &[u32], theirs: &[u32]) {
    assert_eq!(ours.len(), theirs.len(), "{name}");
    for (n, (x, y)) in ours.chunks_exact(3).zip(theirs.chunks_exact(3)).enumerate() {
        let turned = [[x[0], x[1], x[2]], [x[1], x[2], x[0]], [x[2], x[0], x[1]]];
        assert!(turned.iter().any(|t| t == y), "{name}: triangle {n} was {x:?}, is {y:?}");
    }
}
