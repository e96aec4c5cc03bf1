//! The two meshes: how they are made, encoded and checked.
//!
//! Both have about 40,000 triangles, so that the decoded 480 kB fit a second-level cache. They
//! differ in how soon the decoder reads an edge again that it has just written to its ring: in
//! strips every triangle shares an edge with the one before it, in an optimised grid only some do.

use std::fmt;

/// Which mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Long triangle strips: each triangle shares an edge with its predecessor.
    Strips,
    /// A square grid in the order that meshoptimizer's vertex cache optimiser gives it.
    Grid,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strips => "strips",
            Self::Grid => "grid",
        })
    }
}

const STRIP_COUNT: u32 = 40;
const TRIANGLES_PER_STRIP: u32 = 1000;
const GRID_CELLS_PER_SIDE: u32 = 141;

/// Triangles as three indices each.
pub struct Mesh {
    /// Three per triangle.
    pub indices: Vec<u32>,
    vertex_count: usize,
}

impl Mesh {
    /// Builds the mesh; the same on every machine.
    pub fn new(shape: Shape) -> Result<Self, String> {
        let mut indices = match shape {
            Shape::Strips => strips(),
            Shape::Grid => grid(),
        };
        let vertex_count = indices.iter().max().map_or(0, |last| *last as usize + 1);
        if shape == Shape::Grid {
            indices = meshopt::optimize_vertex_cache(&indices, vertex_count);
        }
        if indices.len() % 3 != 0 {
            return Err("the mesh is not made of triangles".into());
        }
        Ok(Self {
            indices,
            vertex_count,
        })
    }

    /// How many triangles.
    pub fn triangle_count(&self) -> usize {
        self.indices.len() / 3
    }

    /// The mesh in meshoptimizer's index encoding.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        meshopt::encode_index_buffer(&self.indices, self.vertex_count)
            .map_err(|error| format!("cannot encode the mesh: {error}"))
    }

    /// Compares decoded triangles with ours. The codec keeps their order but may rotate the
    /// corners of each.
    pub fn check(&self, decoded: &[u32]) -> Result<(), String> {
        let pairs = self.indices.chunks_exact(3).zip(decoded.chunks_exact(3));
        for (number, (ours, theirs)) in pairs.enumerate() {
            let &[a, b, c] = ours else { continue };
            if ![[a, b, c], [b, c, a], [c, a, b]]
                .iter()
                .any(|t| t == theirs)
            {
                return Err(format!(
                    "triangle {number} was {ours:?} and came back as {theirs:?}"
                ));
            }
        }
        Ok(())
    }
}

/// FNV-1a over the indices: equal for equal triangles.
pub fn checksum(indices: &[u32]) -> u64 {
    indices
        .iter()
        .flat_map(|index| index.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
}

fn strips() -> Vec<u32> {
    let mut indices = Vec::new();
    for strip in 0..STRIP_COUNT {
        let base = strip * (TRIANGLES_PER_STRIP + 2);
        for i in base..base + TRIANGLES_PER_STRIP {
            // Every other triangle is turned over so that all face the same way.
            let flip = (i - base) % 2;
            indices.extend([i + flip, i + 1 - flip, i + 2]);
        }
    }
    indices
}

fn grid() -> Vec<u32> {
    let stride = GRID_CELLS_PER_SIDE + 1;
    let mut indices = Vec::new();
    for y in 0..GRID_CELLS_PER_SIDE {
        for x in 0..GRID_CELLS_PER_SIDE {
            let corner = y * stride + x;
            let (right, below) = (corner + 1, corner + stride);
            indices.extend([corner, right, below, right, below + 1, below]);
        }
    }
    indices
}
