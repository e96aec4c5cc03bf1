//! The meshes: generated ones of about 40,000 triangles, whose decoded indices fit a second-level
//! cache, and a real one from a file.

use std::path::Path;

/// A mesh and what it is called.
pub struct Mesh {
    /// For the table.
    pub name: String,
    /// Three per triangle.
    pub indices: Vec<u32>,
}

const STRIP_COUNT: u32 = 40;
const TRIANGLES_PER_STRIP: u32 = 1000;
const GRID_CELLS_PER_SIDE: u32 = 141;
const RANDOM_TRIANGLES: usize = 40_000;
const RANDOM_VERTICES: u64 = 20_000;

/// Strips, a grid ordered for the vertex cache, and random triangles.
pub fn generated() -> Vec<Mesh> {
    let mesh = |name: &str, indices| Mesh { name: name.into(), indices };
    vec![mesh("strips", strips()), optimised("grid", &grid()), mesh("random", random())]
}

/// The triangles in the order that meshoptimizer's vertex cache optimiser gives them.
fn optimised(name: &str, indices: &[u32]) -> Mesh {
    let vertex_count = indices.iter().max().map_or(0, |last| *last as usize + 1);
    let ordered = meshopt::optimize_vertex_cache(indices, vertex_count);
    // New vertices get numbers in the order of their first use, as a renderer wants it.
    let mut number = vec![u32::MAX; vertex_count];
    let mut next = 0;
    let renumber = |index: &u32| {
        let slot = &mut number[*index as usize];
        if *slot == u32::MAX {
            *slot = next;
            next += 1;
        }
        *slot
    };
    let indices = if name == "grid" { ordered } else { ordered.iter().map(renumber).collect() };
    Mesh { name: name.into(), indices }
}

/// The triangles of a PLY file with ASCII numbers: as they are, and in the order and with the
/// numbers that a renderer wants.
pub fn from_ply(path: &Path) -> Result<Vec<Mesh>, String> {
    let at = |message: &str| format!("{}: {message}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| at(&e.to_string()))?;
    let (head, body) = text.split_once("end_header").ok_or_else(|| at("not a PLY file"))?;
    if !head.contains("format ascii") {
        return Err(at("only ASCII PLY files are read"));
    }
    let count = |element: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(element));
        line.and_then(|n| n.trim().parse::<usize>().ok()).ok_or_else(|| at("no element count"))
    };
    let (vertex_count, face_count) = (count("element vertex")?, count("element face")?);
    let mut indices = Vec::with_capacity(3 * face_count);
    for line in body.lines().skip(1 + vertex_count).take(face_count) {
        let numbers: Vec<u32> = line.split_whitespace().flat_map(str::parse).collect();
        match numbers[..] {
            [3, a, b, c] => indices.extend([a, b, c]),
            _ => return Err(at("a face that is not a triangle")),
        }
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let ordered = optimised(&format!("{name}, optimised"), &indices);
    Ok(vec![Mesh { name: format!("{name}, as it is"), indices }, ordered])
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

fn random() -> Vec<u32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((state >> 33) % RANDOM_VERTICES) as u32
    };
    (0..3 * RANDOM_TRIANGLES).map(|_| next()).collect()
}
